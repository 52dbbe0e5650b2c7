"""Holo 3: hub.hcompany.ai/agent-loop, and the tests of NVIDIA's scaffold of it for OSWorld
(github.com/JeffPengCoder/Gym @9ee0b0c, responses_api_agents/osworld_agent, `Holo3Agent`)."""

import json
from typing import Any

import pytest

from models.completion import Completion
from models.families.template import template
from models.policy import Context
from schemas import action as act
from schemas.action import Action
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from tests.unit.models.families.test_families import made
from tests.unit.models.families.test_ui_venus import DESKTOP, PHONE, Size, pixels


def step(call: dict[str, Any], note: str | None = None, thought: str = "Act carefully.") -> str:
    return json.dumps({"note": note, "thought": thought, "tool_call": call})


def read(text: str, screen: Size = DESKTOP) -> Completion:
    return made("holo-3").read(Completion(text), screen)


@pytest.mark.parametrize(
    ("x", "y", "screen", "place"),
    [
        (932, 880, DESKTOP, (1789, 950)),
        (932, 880, PHONE, (1006, 2112)),
        (1000, 1000, DESKTOP, (1919, 1079)),
        (1000, 1000, PHONE, (1079, 2399)),
        (447, 81, DESKTOP, (858, 87)),
        (447, 81, PHONE, (482, 194)),
        (500, 250, DESKTOP, (960, 270)),
    ],
)
def test_places_are_those_of_the_hubs_python(x: int, y: int, screen: Size, place: tuple[int, int]) -> None:
    """`int((x / 1000) * width)`, and at most the last pixel."""
    found = read(step({"tool_name": "click", "element": "Continue", "x": x, "y": y}), screen)
    assert pixels(found.first, screen) == [place] and found.unused == ("element=Continue",)


def test_the_hubs_example_has_a_note_and_a_thought() -> None:
    found = read(
        '{"note": "Submit succeeded; receipt URL is /orders/8421.", "thought": "Recording the receipt URL before '
        'navigating away.", "tool_call": {"tool_name": "click", "element": "Continue button at the bottom right", '
        '"x": 932, "y": 880}}'
    )
    assert found.first == act.Click(x=0.932, y=0.88)
    note, thought = (
        "Submit succeeded; receipt URL is /orders/8421.",
        "Recording the receipt URL before navigating away.",
    )
    assert found.thought == f"Note: {note}\nThought: {thought}"
    again = json.loads(made("holo-3").reply(found.thought, [act.Click(x=0.932, y=0.88)], DESKTOP))
    assert (again["note"], again["thought"]) == (note, thought)


@pytest.mark.parametrize(
    ("call", "actions"),
    [
        ({"tool_name": "write", "content": "a", "press_enter": True}, [act.Type(content="a\n")]),
        ({"tool_name": "answer", "content": "42"}, [act.Finished(content="42")]),
        (
            {"tool_name": "write", "content": "hello", "press_enter": True, "overwrite": True},
            [act.Hotkey(key="ctrl a"), act.Type(content="hello\n")],
        ),
        (
            {"tool_name": "hotkey", "keys": ["ctrl", "s"], "repeat_count": 2},
            [act.Hotkey(key="ctrl s"), act.Hotkey(key="ctrl s")],
        ),
        (
            {"tool_name": "hold_and_tap_key", "hold_keys": ["ctrl"], "tap_keys": ["return", "escape"]},
            [act.Press(key="ctrl"), act.Hotkey(key="return"), act.Hotkey(key="escape"), act.Release(key="ctrl")],
        ),
        ({"tool_name": "key_down", "key": "shift"}, [act.Press(key="shift")]),
        ({"tool_name": "key_up_desktop", "key": "shift"}, [act.Release(key="shift")]),
        (
            {"tool_name": "drag", "x": 100, "y": 200, "x2": 300, "y2": 400},
            [act.Drag(x=0.1, y=0.2, to_x=0.3, to_y=0.4)],
        ),
        ({"tool_name": "click_desktop", "x": 100, "y": 200, "button": "right"}, [act.RightSingle(x=0.1, y=0.2)]),
        ({"tool_name": "double_click", "x": 100, "y": 200}, [act.LeftDouble(x=0.1, y=0.2)]),
        ({"tool_name": "wait"}, [act.Wait()]),
    ],
)
def test_tools_are_the_actions_that_its_readers_make_of_them(call: dict[str, Any], actions: list[Action]) -> None:
    found = read(step(call))
    assert [*found.actions, *found.dropped] == actions and len(found.actions) == len(actions), found.error
    assert not found.unused and found.thought == "Act carefully."


def test_a_scrolls_size_is_reported_and_a_waits_duration_is_performed() -> None:
    call = {"tool_name": "scroll", "element": "page", "x": 1000, "y": 1000, "direction": "down", "scroll_size": 7}
    found = read(step(call))
    assert found.first == act.Scroll(x=1, y=1, direction="down") and pixels(found.first, DESKTOP) == [(1919, 1079)]
    assert found.unused == ("element=page", "scroll_size=7")
    waited = read(step({"tool_name": "wait", "duration": 1}))
    assert (waited.first, waited.unused) == (act.Wait(seconds=1), ())
    pressed = read(step({"tool_name": "click", "x": 500, "y": 250, "button": "middle"}))
    assert pressed.first == act.MiddleSingle(x=0.5, y=0.25)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (step({"tool_name": "update_plan", "goals": []}), "not supported: update_plan"),
        (step({"tool_name": "move", "element": "a", "x": 1, "y": 2}), "not supported: move"),
        (step({"tool_name": "drag_to", "element": "a", "x": 1, "y": 2}), "not supported: drag_to"),
        (step({"tool_name": "click", "x": 1, "y": 2, "button": "back"}), "unknown mouse button 'back'"),
        (step({"tool_name": "hotkey", "keys": ["a", "b", "c", "d"]}), "4 keys at once"),
        (step({"tool_name": "hotkey", "keys": ["a"], "repeat_count": 0}), "pressed 0 times"),
        (step({"tool_name": "click", "x": 1}), "`y` is missing"),
        (step({"tool_name": "click", "x": 1001, "y": 5}), "click.x"),
        (step({"tool_name": "write"}), "`content` is missing"),
        (step({"element": "a", "x": 1, "y": 2}), "`tool_name` is missing"),
        ('{"thought": "missing tool"}', "`tool_name` is missing"),
        ('{"thought": "a", "tool_call": [1]}', "`tool_call` is no object"),
        ('{"thought": "a", "tool_call": {"tool_name": "wait"', "Expecting"),
        ("I wait.", "no tool call"),
    ],
)
def test_a_step_without_an_action_of_ours_is_refused_by_name(text: str, problem: str) -> None:
    found = read(text)
    assert not (*found.actions, *found.dropped) and problem in (found.error or "")


def test_words_fences_and_thinking_around_a_step_are_no_part_of_it() -> None:
    """`_parse_step` takes the whole text, a fenced block or the first object."""
    whole = step({"tool_name": "wait"})
    for text in (
        f"```json\n{whole}\n```",
        f"<think>\n{step({'tool_name': 'answer', 'content': ''})}\n</think>\n{whole}",
    ):
        found = read(text)
        assert (found.first, found.thought, found.action_text) == (act.Wait(), "Act carefully.", whole)
    assert read(f"Well.\n{whole}").thought == "Well.\nAct carefully."


def test_function_calls_of_holo_3_1_are_read() -> None:
    calls = [
        {"name": "click", "arguments": {"element": "OK", "x": 500, "y": 250}},
        {"name": "answer", "arguments": json.dumps({"content": "42"})},
    ]
    text = "\n".join(f"<tool_call>\n{json.dumps(one)}\n</tool_call>" for one in calls)
    found = read(f"I click.\n{text}")
    assert (found.first, found.thought) == (act.Click(x=0.5, y=0.25), "I click.")
    assert (*found.actions, *found.dropped)[1:] == (act.Finished(content="42"),) and found.unused == ("element=OK",)


def asked(images: int, turns: tuple[PastStep, ...]) -> list[tuple[str, str]]:
    chat = made("holo-3", history_images=images).messages(Context("Do it.", turns, Observation(b"", 9, 9, ""), 0))
    parts = [["<picture>" if p["type"] == "image" else p["text"] for p in one["content"]] for one in chat]
    return [(one["role"], "".join(part)) for one, part in zip(chat, parts, strict=True)]


def test_past_steps_are_their_json_with_three_screens_and_the_tools_outputs() -> None:
    """test_holo3_history_replays_parsed_json_and_keeps_only_three_images."""
    replies = [step({"tool_name": "wait", "duration": 1}, f"durable-{at}", f"wait-{at}") for at in range(3)]
    read_ = [read(f"<think>\nprivate-{at}\n</think>\n{one}") for at, one in enumerate(replies)]
    seen = Observation(b"", 9, 9, "")
    chat = asked(3, tuple(PastStep(one.thought, one.action_text, seen) for one in read_))
    assert [role for role, _ in chat] == ["system", "user", *["user", "assistant", "user"] * 3, "user"]
    assert chat[1] == ("user", "Task: Do it.")
    screens = [text for role, text in chat[2:] if role == "user" and text.startswith("<observation>")]
    evicted, shown = "<observation>\n[screenshot evicted]\n</observation>", "<observation>\n<picture>\n</observation>"
    assert screens == [evicted, shown, shown, shown]
    assert [text for role, text in chat if role == "assistant"] == replies
    assert "private" not in str(chat)
    output = '<tool_output tool="wait">\nwait executed successfully.\n</tool_output>'
    assert [text for _, text in chat if text.startswith("<tool_output")] == [output] * 3


def test_a_refused_call_is_followed_by_its_reason() -> None:
    """`_messages`: a step with a `tool_error`."""
    turn = PastStep(
        "I click.", made("holo-3").write(act.Click(x=0.5, y=0.25), DESKTOP), Observation(b"", 9, 9, ""), "no page"
    )
    assert asked(1, (turn,))[4] == ("user", '<error tool="click">\nno page\n</error>')


def test_a_demonstrations_thought_and_a_function_call_become_the_json_of_a_past_step() -> None:
    family, seen = made("holo-3"), Observation(b"", 9, 9, "")
    typed = PastStep("I click.", family.write(act.Click(x=0.5, y=0.25), DESKTOP), seen)
    called = PastStep("I wait.", '{"name": "wait", "arguments": {"duration": 2}}', seen)
    words = PastStep("Hm.", "", seen)
    chat = asked(1, (typed, called, words))
    assert [text for role, text in chat if role == "assistant"] == [
        '{"note":null,"thought":"I click.","tool_call":{"tool_name":"click","element":"","x":500,"y":250}}',
        '{"note":null,"thought":"I wait.","tool_call":{"tool_name":"wait","duration":2}}',
        "Hm.",
    ]
    assert sum(text.startswith("<tool_output") for _, text in chat) == 2


def test_the_prompt_lists_the_tools_that_are_actions_and_no_other() -> None:
    system = asked(1, ())[0][1]
    schema = json.loads(system.partition("```json\n")[2].partition("\n```\n</output_format>")[0])
    assert schema == json.loads(template("holo-3-schema.json")) and "Ubuntu at 9x9 pixels" in system
    tools = schema["properties"]["tool_call"]["discriminator"]["mapping"]
    assert {"click", "write", "hotkey", "answer", "wait"} <= tools.keys() and "update_plan" not in tools
    with pytest.raises(UsageError, match="holo-3 has no tool for long_press"):
        made("holo-3").write(act.LongPress(x=0.5, y=0.5), DESKTOP)


@pytest.mark.parametrize("content", ["a", "a\n", "a\n\n", "\n", "", 'é "x" </think> <|im_end|>'])
def test_a_typed_text_is_read_as_it_was_written(content: str) -> None:
    family, typed = made("holo-3"), act.Type(content=content)
    assert family.read(Completion(family.reply("I type.", [typed], DESKTOP)), DESKTOP).first == typed
