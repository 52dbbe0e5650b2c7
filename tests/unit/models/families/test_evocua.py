"""EvoCUA's calls, as its agent performs them: meituan/EvoCUA @4a0ad5f, mm_agents/evocua/evocua_agent.py."""

import json
from typing import Any

import pytest

from environments.desktop.sandbox import pixel
from models.completion import Completion
from models.families.screen import Size
from models.policy import Context
from schemas import action as act
from schemas.action import Action
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from tests.unit.models.families.test_families import SCREEN, chat, made

WIDE, TALL = (1920, 1080), (1080, 2400)


def called(**arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'computer_use', 'arguments': arguments})}\n</tool_call>"


def read(text: str, screen: Size = SCREEN) -> Completion:
    return made("evocua").read(Completion(text), screen)


def all_of(read: Completion) -> list[Action]:
    return [*read.actions, *read.dropped]


@pytest.mark.parametrize(("screen", "at"), [(WIDE, (859, 87)), (TALL, (483, 194))])
def test_a_click_is_at_the_pixel_of_its_agent(screen: Size, at: tuple[int, int]) -> None:
    """`adjust_coordinates` (l.298-311): int(v * (W / 999))."""
    for name in ("left_click", "click"):
        found = read(f"Action: Click it.\n{called(action=name, coordinate=[447, 81])}", screen)
        assert isinstance(found.first, act.Click) and found.thought == "Click it." and not found.unused
        assert pixel(found.first.x, found.first.y, *screen) == at


@pytest.mark.parametrize("screen", [WIDE, TALL, (1280, 720), (1366, 768), (2560, 1440)])
def test_every_place_of_the_grid_is_at_the_pixel_of_its_agent_or_the_last_one(screen: Size) -> None:
    family = made("evocua")
    for value in range(1000):
        found = read(called(action="left_click", coordinate=[value, value]), screen).first
        assert isinstance(found, act.Click)
        theirs = [min(int(value * (side / 999)), side - 1) for side in screen]
        assert [*pixel(found.x, found.y, *screen)] == theirs
        assert f'"coordinate": [{value}, {value}]' in family.write(found, screen)
    assert read(called(action="left_click", coordinate=[1000, 5])).first is None


@pytest.mark.parametrize(("screen", "at"), [(WIDE, (960, 540)), (TALL, (540, 1201))])
def test_three_clicks_are_three(screen: Size, at: tuple[int, int]) -> None:
    """Its agent calls `pyautogui.tripleClick`; Qwen3-VL's own tool calls it a double click."""
    text = called(action="triple_click", coordinate=[500, 500])
    found = read(text, screen).first
    assert isinstance(found, act.TripleClick) and pixel(found.x, found.y, *screen) == at
    assert made("evocua").write(found, screen) == text
    other = read(text.replace("triple", "double"), screen).first
    assert isinstance(other, act.LeftDouble) and pixel(other.x, other.y, *screen) == at
    qwen = made("qwen3-vl").read(Completion(text), screen).first
    assert qwen == act.LeftDouble(x=0.5, y=0.5)


@pytest.mark.parametrize(("screen", "start", "end"), [(WIDE, (384, 324), (1537, 324)), (TALL, (216, 720), (864, 720))])
def test_a_drag_begins_where_the_mouse_was_moved_to(screen: Size, start: tuple[int, int], end: tuple[int, int]) -> None:
    move, drag = (
        called(action="mouse_move", coordinate=[200, 300]),
        called(action="left_click_drag", coordinate=[800, 300]),
    )
    found = read(f"Action: Drag it.\n{move}\n{drag}", screen)
    assert isinstance(found.first, act.Drag) and not (*found.actions, *found.dropped)[1:]
    assert pixel(found.first.x, found.first.y, *screen) == start
    assert pixel(found.first.to_x, found.first.to_y, *screen) == end
    alone = read(drag, screen)
    assert (
        alone.first == act.MouseDown()
        and isinstance((*alone.actions, *alone.dropped)[1:][0], act.MouseUp)
        and len(alone.actions) == 2
    )
    assert (
        pixel((*alone.actions, *alone.dropped)[1:][0].x or 0, (*alone.actions, *alone.dropped)[1:][0].y or 0, *screen)
        == end
    )


def test_keys_are_held_in_order_and_released_in_reverse() -> None:
    """l.407-415: `keyDown` for each key, then `keyUp` for each of `reversed(keys)`."""
    keys = ["ctrl", "shift"]
    found = read(f"{called(action='key_down', keys=keys)}\n{called(action='key_up', keys=keys)}")
    pressed = [act.Press(key="ctrl"), act.Press(key="shift")]
    assert all_of(found) == [*pressed, act.Release(key="shift"), act.Release(key="ctrl")]
    assert len(found.actions) == 4 and not found.unused
    click = called(action="left_click", coordinate=[500, 500])
    held = all_of(
        read(f"{called(action='key_down', keys=['ctrl'])}\n{click}\n{called(action='key_up', keys=['ctrl'])}")
    )
    assert [one.type for one in held] == ["press", "click", "release"]


@pytest.mark.parametrize(
    ("arguments", "actions"),
    [
        ({"action": "right_click", "coordinate": [0, 999]}, [act.RightSingle(x=0, y=1)]),
        ({"action": "type", "text": "a\nb"}, [act.Type(content="a\nb")]),
        ({"action": "key", "keys": ["ctrl", "c"]}, [act.Hotkey(key="ctrl c")]),
        ({"action": "key", "keys": ["enter"]}, [act.Hotkey(key="enter")]),
        ({"action": "key", "keys": "enter"}, [act.Hotkey(key="enter")]),
        ({"action": "scroll", "pixels": -5}, [act.Scroll(direction="down")]),
        ({"action": "wait"}, [act.Wait()]),
        ({"action": "wait", "time": 3}, [act.Wait(seconds=3)]),
        ({"action": "wait", "time": 100}, [act.Wait(seconds=30)]),
        ({"action": "middle_click", "coordinate": [0, 999]}, [act.MiddleSingle(x=0, y=1)]),
        ({"action": "mouse_move", "coordinate": [0, 999]}, [act.Move(x=0, y=1)]),
        ({"action": "terminate", "status": "success"}, [act.Finished()]),
        ({"action": "terminate"}, [act.Finished()]),
        ({"action": "terminate", "status": "failure"}, [act.CallUser()]),
    ],
)
def test_its_actions_are_ours(arguments: dict[str, Any], actions: list[Action]) -> None:
    found = read(called(**arguments))
    assert all_of(found) == actions, found.error


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        (['keys=["ctrl"', '"c"]'], "ctrl c"),
        (["keys=[ctrl", "c]"], "ctrl c"),
        (["keys=['ctrl'", "'c']"], "ctrl c"),
        (["['ctrl'", "c"], "ctrl c"),
        (['["ctrl", "c"]'], "ctrl c"),
        (["keys=['enter']"], "enter"),
        ([["ctrl"], "c"], "ctrl c"),
        (["ctrl", "]"], "ctrl ]"),
        (["ctrl+["], "ctrl ["),
        (["ctrl+]"], "ctrl ]"),
        (["'"], "'"),
        (["ctrl", ","], "ctrl ,"),
    ],
)
def test_keys_that_are_wrapped_twice_are_unwrapped(keys: list[Any], key: str) -> None:
    """`_clean_keys` (l.320-338). It keeps the quotes of `keys=['ctrl'` and drops the bracket of `ctrl+]`."""
    found = read(called(action="key", keys=keys))
    assert found.first == act.Hotkey(key=key), found.error


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"action": "triple_click", "clicks": 2}, "2 clicks at the pointer"),
        ({"action": "key_down", "keys": []}, "key_down of 0 keys"),
        ({"action": "key_up", "keys": ["a", "b", "c", "d"]}, "key_up of 4 keys"),
        ({"action": "key_down", "keys": ["nokey"]}, "no key 'nokey'"),
        ({"action": "terminate", "status": "maybe"}, "status 'maybe'"),
        ({"action": "left_click", "coordinate": [5, 5], "text": "ctrl"}, "while ctrl is held"),
    ],
)
def test_an_action_that_we_lack_is_refused_by_name(arguments: dict[str, Any], reason: str) -> None:
    found = read(called(**arguments))
    assert found.first is None and reason in str(found.error)


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        ({"action": "wait", "time": 3}, ()),
        ({"action": "wait", "time": 100}, ("time=100",)),
        ({"action": "scroll", "pixels": 3}, ("pixels=3",)),
        ({"action": "double_click", "coordinate": [5, 5], "duration": 0.5}, ("duration=0.5",)),
    ],
)
def test_an_argument_that_no_action_has_is_reported(arguments: dict[str, Any], unused: tuple[str, ...]) -> None:
    assert read(called(**arguments)).unused == unused


def test_a_backslash_in_a_text_is_typed() -> None:
    """Its agent decodes escapes, so `C:\\new` becomes two lines (l.391); the model's JSON is the text here."""
    assert read(called(action="type", text="C:\\new")).first == act.Type(content="C:\\new")


def test_the_sentence_of_its_own_reply_form_is_the_thought_and_thinking_is_no_action() -> None:
    draft = called(action="left_click", coordinate=[1, 1])
    for begin in ("<think>\n", ""):
        found = read(f"{begin}Maybe\n{draft}\n</think>\n\nAction: Wait.\n{called(action='wait')}")
        assert (*found.actions, *found.dropped) == (act.Wait(),) and found.thought == "Wait."


def test_its_prompt_is_that_of_its_agent_with_the_last_turns_in_full() -> None:
    """`_build_s2_messages`: `Step i:` for the turns before the last `max_history_turns`, whose replies stay."""
    roles, texts = zip(*chat(made("evocua", history_images=2)), strict=True)
    assert roles == ("system", "user", "assistant", "user")
    assert texts[0].startswith("# Tools\n\nYou may call") and texts[0].endswith(
        "use action=terminate in the tool call."
    )
    (line,) = (line for line in texts[0].split("\n") if line.startswith('{"type"'))
    tool = json.loads(line)["function"]
    assert list(tool) == ["name_for_human", "name", "description", "parameters", "args_format"]
    assert (
        "resolution is 1000x1000." in tool["description"]
        and "key_up" in tool["parameters"]["properties"]["action"]["enum"]
    )
    assert texts[1].startswith("<1001>\nPlease generate") and texts[1].endswith("Previous actions:\nStep 1: t0")
    assert texts[2].startswith("Action: t1\n<tool_call>\n{") and texts[3] == "<1002>"
    first = chat(made("evocua"), past=0)
    assert first[1][1].endswith("Previous actions:\nNone") and len(first) == 2


@pytest.mark.parametrize(
    ("reply", "listed"),
    [
        (f"Action: Do it.\nAnd more.\n{called(action='wait')}", "Do it."),
        (f"I look.\nAction: Do it.\n{called(action='wait')}", "Do it."),
        (f"I look.\n{called(action='left_click', coordinate=[5, 5])}", "Performing click action"),
        (called(action="type", text="a"), "Performing press action"),
        (called(action="key", keys=["ctrl", "c"]), "Performing hotkey action"),
        (called(action="key", keys=["enter"]), "Performing press action"),
    ],
)
def test_an_earlier_step_is_listed_by_its_sentence_or_by_its_action(reply: str, listed: str) -> None:
    """evocua_agent.py, `_parse_response_s2`: `low_level_instruction`."""
    found, screen = read(reply), Observation(b"", *SCREEN, "")
    turn = PastStep(found.thought, found.action_text, screen, reply=reply)
    asked = str(made("evocua").chat(Context("Do it.", (turn,), screen, 0))[1]["content"][1]["text"])
    assert asked.endswith(f"Previous actions:\nStep 1: {listed}")


def test_a_past_reply_is_shown_as_it_was_written() -> None:
    reply = f"Action: Hold it.\n{called(action='key_down', keys=['ctrl', 'shift'])}"
    family, screen = made("evocua", history_images=2), Observation(b"", *SCREEN, "")
    found = read(reply)
    past = (PastStep(found.thought, found.action_text, screen),)
    assert family.messages(Context("Do it.", past, screen, 0))[2]["content"][0]["text"] == reply


def test_an_action_that_its_tool_lacks_is_not_written() -> None:
    for one in (act.LongPress(x=0.5, y=0.5), act.OpenApp(app_name="Maps"), act.Navigate(content="a.example")):
        with pytest.raises(UsageError, match=r"policy\.template.*has no action"):
            made("evocua").write(one, SCREEN)
    assert '"action": "key_down", "keys": ["ctrl"]' in made("evocua").write(act.Press(key="ctrl"), SCREEN)


def test_a_reply_may_be_as_long_as_its_agent_allows() -> None:
    assert made("evocua").max_new_tokens == 32_768 and made("evocua").templates == ("computer",)
