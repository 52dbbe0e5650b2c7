"""Qwen3.5, 3.6 and 3.8: their prompts, and replies as the public agents read them.

`qwen35vl_agent.py` is github.com/mrwwk/DeskCraft @4db5e46, mm_agents/qwen35vl_agent.py; the package is `mm_agents/qwen`
of github.com/MMadmax/OSWorld-1.0 @eeb396a; the demo is github.com/xlang-ai/Qwen-CUA @85923de, demo/src/qwen_cua.
"""

import json
from typing import Any

import pytest

from models.completion import Completion
from models.families.family import ModelFamily
from models.families.outside import SELECTOR, sent
from models.families.prompt import COLLAPSED
from models.families.screen import Size
from models.policy import Context
from models.serving.server import wire_message
from schemas import action as act
from schemas.action import Action
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from tests.unit.models.families.test_families import SCREEN, made

VERSIONS = ("qwen3.5", "qwen3.6", "qwen3.8")
WIDE, TALL = (1920, 1080), (1080, 2400)


def called(action: str, tool: str = "computer_use", **arguments: Any) -> str:
    """A call as the chat templates write it."""
    given = {"action": action, **arguments}
    lines = [
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
        for key, value in given.items()
    ]
    return f"<tool_call>\n<function={tool}>\n{''.join(lines)}</function>\n</tool_call>"


def read(name: str, reply: str, screen: Size = SCREEN, template: str = "") -> Completion:
    return made(name, template).read(Completion(reply), screen)


def all_of(found: Completion) -> list[Action]:
    return [*found.actions, *found.dropped]


def pixel(action: Action | None, screen: Size) -> list[int]:
    """The pixel that the agents act at: `int(v * (side / 999))`, within the screen."""
    fields = action.model_dump() if action else {}
    sides = {"x": screen[0], "y": screen[1], "to_x": screen[0], "to_y": screen[1]}
    return [min(int(fields[name] * side + 1e-9), side - 1) for name, side in sides.items() if name in fields]


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize(
    ("reply", "action", "wide", "tall", "place"),
    [
        (
            f"Action: Click it.\n{called('left_click', coordinate=[447, 81])}",
            "click",
            [859, 87],
            [483, 194],
            [0.447447, 0.081081],
        ),
        (called("left_click", coordinate=[500, 500]), "click", [960, 540], [540, 1201], [0.500501, 0.500501]),
        (called("double_click", coordinate=[999, 999]), "left_double", [1919, 1079], [1079, 2399], [1, 1]),
        (
            called("mouse_move", coordinate=[200, 300]) + called("left_click_drag", coordinate=[800, 300]),
            "drag",
            [384, 324, 1537, 324],
            [216, 720, 864, 720],
            [0.2002, 0.3003, 0.800801, 0.3003],
        ),
    ],
)
def test_places_are_999ths_of_the_screen(
    name: str, reply: str, action: str, wide: list[int], tall: list[int], place: list[float]
) -> None:
    """The package's `images.py`, `adjust_coordinates`; a place of 999 is the last pixel."""
    for screen, wanted in ((WIDE, wide), (TALL, tall)):
        found = read(name, reply, screen)
        assert found.first is not None and found.first.type == action and pixel(found.first, screen) == wanted
        fields = found.first.model_dump()
        assert [fields[key] for key in ("x", "y", "to_x", "to_y") if key in fields] == pytest.approx(place, abs=1e-6)
    assert read(name, reply).thought == ("Click it." if "Click it." in reply else "")


@pytest.mark.parametrize(
    ("place", "wide", "tall"),
    [
        ([447, 81], [859, 87], [483, 195]),
        ([500, 500], [960, 540], [540, 1201]),
        ([999, 999], [1919, 1079], [1079, 2399]),
    ],
)
def test_the_demo_of_qwen_cua_clicks_at_the_same_place(place: list[int], wide: list[int], tall: list[int]) -> None:
    """The demo's `computer.py`: `round(v / 999 * (side - 1))`, within a pixel of the place that is stored here."""
    for screen, wanted in ((WIDE, wide), (TALL, tall)):
        found = read("qwen3.6", called("left_click", coordinate=place), screen).first
        assert isinstance(found, act.Click)
        assert [round(found.x * (screen[0] - 1)), round(found.y * (screen[1] - 1))] == wanted


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize(
    ("reply", "actions"),
    [
        (
            called("key", keys=["ctrl+s"]) + called("terminate", status="success"),
            [act.Hotkey(key="ctrl s"), act.Finished()],
        ),
        (called("key", keys=["ctrl+shift+t"]), [act.Hotkey(key="ctrl shift t")]),
        (called("key", keys=[["ctrl"], "shift", "t"]), [act.Hotkey(key="ctrl shift t")]),
        (called("key", keys="['ctrl', 'c']"), [act.Hotkey(key="ctrl c")]),
        (called("key", keys="enter"), [act.Hotkey(key="enter")]),
        (called("type", text="a\nb"), [act.Type(content="a\nb")]),
        (called("type", text="  a\n"), [act.Type(content="  a\n")]),
        (called("scroll", pixels=-5), [act.Scroll(direction="down")]),
        (called("hscroll", pixels="3"), [act.Scroll(direction="right")]),
        (called("wait", time=2), [act.Wait(seconds=2)]),
        (called("middle_click", coordinate=[999, 0]), [act.MiddleSingle(x=1, y=0)]),
        (called("mouse_move", coordinate=[999, 0]), [act.Move(x=1, y=0)]),
        (
            called("mouse_move", coordinate=[999, 0]) + called("key", keys=["a"]),
            [act.Move(x=1, y=0), act.Hotkey(key="a")],
        ),
        (
            called("mouse_move", coordinate=[999, 0]) + called("left_click", coordinate=[0, 999]),
            [act.Move(x=1, y=0), act.Click(x=0, y=1)],
        ),
        (called("terminate", status="failure"), [act.CallUser()]),
        (called("terminate", status="infeasible"), [act.CallUser()]),
        (called("answer", text="42"), [act.Finished(content="42")]),
        (
            called("mouse_move", coordinate=[999, 0]) + called("left_click") + called("scroll", pixels=5),
            [act.Click(x=1, y=0), act.Scroll(x=1, y=0, direction="up")],
        ),
        (
            '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [999, 0]}}\n'
            "</tool_call>",
            [act.Click(x=1, y=0)],
        ),
    ],
)
def test_calls_are_read_as_the_agents_read_them(name: str, reply: str, actions: list[Action]) -> None:
    found = read(name, reply)
    assert all_of(found) == actions, found.error


@pytest.mark.parametrize(
    ("name", "reply", "problem"),
    [
        ("qwen3.5", called("left_click"), "left_click without a coordinate"),
        ("qwen3.6", called("left_click", clicks=2), "2 clicks at the pointer"),
        ("qwen3.6", called("double_click", clicks=3), "3 clicks at the pointer"),
        ("qwen3.6", called("triple_click", point=[5, 5]), "a place is no `point`"),
        ("qwen3.5", called("double_click"), "double_click without a coordinate"),
        ("qwen3.6", called("left_click", coordinate=[500, 500], text="ctrl"), "a click while ctrl is held"),
        ("qwen3.6", called("left_click", text="ctrl"), "a click while ctrl is held"),
        ("qwen3.5", called("left_click", coordinate=[5, 5], modifiers=["x"]), "keys that are not modifiers"),
        ("qwen3.5", called("middle_click"), "middle_click without a coordinate"),
        ("qwen3.6", called("left_mouse_down", coordinate=[1000, 2]), "mouse_down.x: should be less than or equal to 1"),
        ("qwen3.6", called("mouse_move"), "mouse_move without a coordinate"),
        ("qwen3.5", called("screenshot"), "no action for 'screenshot'"),
        ("qwen3.5", "The file is saved.", "no tool call"),
        ("qwen3.5", "This is not possible.", "no tool call"),
        ("qwen3.8", "Action: Click the button.", "no tool call"),
        ("qwen3.8", called("wait").replace("computer_use", "browser_use"), "no tool 'browser_use'"),
        ("qwen3.8", called("wait").replace("</function>", "<parameter=action>\nkey\n</parameter>\n"), "'action' twice"),
        # the demo's tests/test_protocol.py
        ("qwen3.8", "<tool_call><function=computer_use>", "no action for ''"),
        ("qwen3.8", called("left_click", coordinate="[2000, 2]"), "click.x: should be less than or equal to 1"),
        ("qwen3.8", called("unknown"), "no action for 'unknown'"),
        ("qwen3.8", "<tool_call><parameter=action>wait</parameter></tool_call>", "a tool call without JSON"),
    ],
)
def test_a_call_that_is_no_action_of_ours_is_an_error_by_name(name: str, reply: str, problem: str) -> None:
    found = read(name, reply)
    assert found.first is None and problem in (found.error or ""), found


@pytest.mark.parametrize(
    ("name", "reply", "actions"),
    [
        ("qwen3.5", called("left_click_drag", coordinate=[999, 0]), [act.MouseDown(), act.MouseUp(x=1, y=0)]),
        ("qwen3.8", called("left_click_drag", coordinate=[999, 0]), [act.MouseDown(), act.MouseUp(x=1, y=0)]),
        ("qwen3.6", called("left_click"), [act.MouseDown(), act.MouseUp()]),
        ("qwen3.6", called("double_click"), [act.LeftDouble()]),
        ("qwen3.8", called("triple_click", clicks=3), [act.TripleClick()]),
        ("qwen3.8", called("right_click"), [act.MouseDown(button="right"), act.MouseUp(button="right")]),
        ("qwen3.8", called("middle_click"), [act.MouseDown(button="middle"), act.MouseUp(button="middle")]),
    ],
)
def test_a_click_and_a_drag_without_a_place_begin_at_the_pointer(name: str, reply: str, actions: list[Action]) -> None:
    """The published prompt asks for one call a reply, so a drag is the second of two replies."""
    found = read(name, reply)
    assert all_of(found) == actions and len(found.actions) == len(actions), found.error


@pytest.mark.parametrize(
    ("reply", "keys", "middle"),
    [
        (called("left_click", coordinate=[999, 0], text="ctrl"), ["ctrl"], act.Click(x=1, y=0)),
        (called("right_click", coordinate=[999, 0], text="ctrl+shift"), ["ctrl", "shift"], act.RightSingle(x=1, y=0)),
        (called("scroll", pixels=5, text="shift"), ["shift"], act.Scroll(direction="up")),
    ],
)
def test_a_call_of_qwen35_holds_the_keys_in_its_text(reply: str, keys: list[str], middle: Action) -> None:
    """The tool's description: `text` names modifiers of a click or of a scroll."""
    found = read("qwen3.5", reply)
    held, released = [act.Press(key=key) for key in keys], [act.Release(key=key) for key in reversed(keys)]
    assert all_of(found) == [*held, middle, *released] and len(found.actions) == 1 + 2 * len(keys), found.error
    assert not [one for one in found.unused if not one.startswith("pixels=")]


def test_the_demos_calls_are_read() -> None:
    """The demo's tests/test_protocol.py, `test_parse_multiple_typed_actions` and `test_final_text_has_no_actions`."""
    reply = "\n".join(
        [
            called("left_click", coordinate=[500, 250]),
            called("type", text="Hello, 世界"),
            called("key", keys=["CTRL", "A"]),
            called("scroll", pixels=-640),
            called("terminate", status="success"),
        ]
    )
    found = all_of(read("qwen3.6", reply))
    assert found == [
        act.Click(x=500 / 999, y=250 / 999),
        act.Type(content="Hello, 世界"),
        act.Hotkey(key="ctrl a"),
        act.Scroll(x=500 / 999, y=250 / 999, direction="down"),
        act.Finished(),
    ]
    done = "The requested work is complete."
    assert read("qwen3.6", done).first == act.Finished(content=done)


@pytest.mark.parametrize("name", ["qwen3.6", "qwen3.8"])
def test_a_reply_without_a_call_is_the_last_one(name: str) -> None:
    """The package's `actions.py`, `parse_internal_response`: done, or infeasible by its words."""
    assert read(name, "The file is saved.").first == act.Finished(content="The file is saved.")
    thought = read(name, "<think>\nSaved.\n</think>\n\nThe file is saved.")
    assert (thought.first, thought.thought) == (act.Finished(content="The file is saved."), "Saved.")
    for words in ("This is not possible.", "The task is infeasible: there is no such file.", "I cannot complete it."):
        assert read(name, words).first == act.CallUser()
    for cut in (
        "<think>\nThe file is",
        "<action>\nwait()\n</action>",
        "Done. </tool_call",
        "I <think>",
        "<tool_call>",
        "<function=wait",
        "pyautogui.click(1, 2)",
    ):
        assert read(name, cut).first is None
    family = made(name)
    answer = act.Finished(content="42")
    assert family.write(answer, SCREEN) == "42" and family.reply("I know.\nIt is 42.", [answer], SCREEN).endswith(
        "\n\n42"
    )
    for content in ("not possible", "Action: a", "</think>", " 42"):
        assert "answer" in family.write(act.Finished(content=content), SCREEN)


@pytest.mark.parametrize("name", ["qwen3.6", "qwen3.8"])
def test_held_keys_and_a_look_at_the_screen_are_actions_of_3_6(name: str) -> None:
    held = read(name, called("key_down", keys=["ctrl", "shift"]) + called("key_up", keys=["Shift"]))
    assert all_of(held) == [act.Press(key="ctrl"), act.Press(key="shift"), act.Release(key="shift")]
    assert read(name, called("screenshot")).first == act.Wait()
    asked = read(name, called("call_user", text="Which file?"))
    assert (asked.first, asked.unused) == (act.CallUser(content="Which file?"), ())


@pytest.mark.parametrize("name", ["qwen3.6", "qwen3.8"])
def test_the_button_goes_down_and_up_at_a_place_or_at_the_pointer(name: str) -> None:
    """The tool of 3.6: `coordinate` is optional for both."""
    down, up = called("left_mouse_down"), called("left_mouse_up")
    moved = called("mouse_move", coordinate=[999, 0])
    there: dict[str, Any] = {"x": 1, "y": 0}
    for reply, actions in (
        (called("left_mouse_down", coordinate=[999, 0]), [act.MouseDown(**there)]),
        (up, [act.MouseUp()]),
        (down + up, [act.MouseDown(), act.MouseUp()]),
        (moved + down, [act.MouseDown(**there)]),
        (down + moved + up, [act.MouseDown(), act.MouseUp(**there)]),
    ):
        assert all_of(read(name, reply)) == actions
    family = made(name)
    for action in (act.MouseDown(**there), act.MouseUp(), act.CallUser(content="Which?"), act.TripleClick(**there)):
        assert read(name, family.write(action, SCREEN)).first == action
    for action in (act.MouseDown(button="right"), act.PressRecent()):
        with pytest.raises(UsageError, match=action.type):
            family.write(action, SCREEN)


def test_3_5_has_no_held_button_no_question_and_no_third_click() -> None:
    for action in (act.MouseDown(), act.CallUser(content="Which?"), act.TripleClick(x=0, y=0)):
        with pytest.raises(UsageError, match=action.type):
            made("qwen3.5").write(action, SCREEN)


def test_three_clicks_are_two_where_the_prompt_says_so() -> None:
    """qwen35vl_agent.py performs a double click, as its prompt says; the package's later versions perform three."""
    assert isinstance(read("qwen3.5", called("triple_click", coordinate=[1, 2])).first, act.LeftDouble)
    for name in ("qwen3.6", "qwen3.8"):
        assert isinstance(read(name, called("triple_click", coordinate=[1, 2])).first, act.TripleClick)


@pytest.mark.parametrize("name", VERSIONS)
def test_a_phone_has_qwen3_vls_tool(name: str) -> None:
    """cua-lite's adapter for phones, which states 999x999."""
    reply = called("swipe", "mobile_use", coordinate=[500, 800], coordinate2=[500, 200])
    found = read(name, reply, TALL, "mobile").first
    assert isinstance(found, act.Drag)
    assert [found.x, found.y, found.to_x, found.to_y] == pytest.approx([0.500501, 0.800801, 0.500501, 0.2002], abs=1e-6)
    assert pixel(found, TALL) == [540, 1921, 540, 480]
    tapped = called("left_click", "mobile_use", coordinate=[0, 999])
    assert read(name, tapped, TALL, "mobile").first == act.Click(x=0, y=1)
    back = called("system_button", "mobile_use", button="Back")
    assert read(name, back, TALL, "mobile").first == act.PressBack()
    assert "999x999" in str(made(name, "mobile").messages(Context("a", (), Observation(b"", *TALL, ""), 0)))


def test_arguments_that_no_action_has_are_reported() -> None:
    assert read("qwen3.6", called("wait", time=300)).unused == ("time=300",)
    dragged = called("mouse_move", coordinate=[1, 2]) + called("left_click_drag", coordinate=[3, 4], duration=0.5)
    assert read("qwen3.6", dragged).unused == ("duration=0.5",)
    assert read("qwen3.6", f"{called('wait')}\nThen I look.").unused == ("text behind the action=Then I look.",)
    assert not read("qwen3.5", called("wait")).unused


@pytest.mark.parametrize(
    "text",
    [
        *("a <function=wait> b", "</parameter>", " a ", "\n", "<tool_call>", "{", "[1, 2]", "5"),
        *(
            "a\n<parameter=foo>\nb",
            "<parameter=foo>",
            "<parameter=action>\nkey",
            "<function=x>\n",
            "a</parameter>\n</b>",
        ),
        *("a\n</function>\n<function=x>", "<parameter=x>\n" * 100, "<tool_call>\n<function=x>\n<parameter=text>\na"),
    ],
)
@pytest.mark.parametrize("name", VERSIONS)
def test_a_text_is_typed_as_it_is(name: str, text: str) -> None:
    family, typed = made(name), act.Type(content=text)
    assert read(name, family.write(typed, SCREEN)).first == typed
    with pytest.raises(UsageError, match="no way to write the texts of this type"):
        family.write(act.Type(content="a</parameter>\n</function>\n"), SCREEN)


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize(
    "behind", ["\n</parameter>\n</fuction>\n</tool_call>", "</parameter>\n<function>", "\n</function>\n</tool_call>"]
)
def test_a_text_ends_at_its_end_tag_also_in_a_call_with_a_wrong_end(name: str, behind: str) -> None:
    begun = called("type", text="hello").partition("\n</parameter>\n</function>")[0]
    assert begun.endswith("hello")
    found = read(name, begun + behind)
    assert found.first == act.Type(content="hello") and not found.unused
    found = read(name, f"{begun}\n</function>\n</tool_call>\n{called('wait')}")
    assert all_of(found) == [act.Type(content="hello"), act.Wait()]


def thinking(family: ModelFamily) -> str:
    click = family.write(act.Click(x=0, y=1), SCREEN)
    return f"<think>\nThe menu is open.\nI look for Save.\n</think>\n\nAction: Click Save.\n\n{click}"


def shown(family: ModelFamily, reply: str, past: int = 1) -> list[dict[str, Any]]:
    """The chat after replies, as a server gets it, with screens by their widths."""
    screen = Observation(b"", *SCREEN, "")
    found = family.read(Completion(reply), SCREEN)
    turn = PastStep(found.thought, found.action_text, screen)
    chat = family.chat(Context("Save it.", (turn,) * past, screen, 0))
    for message in chat:
        message["content"] = [
            {"type": "text", "text": "<image>"} if part["type"] == "image" else part for part in message["content"]
        ]
    return [wire_message(message) for message in chat]


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("name", VERSIONS)
def test_the_thinking_of_a_past_turn_is_shown_again(name: str, opened: bool) -> None:
    """The package's `history.py`: assistant turns hold the whole reply. Qwen3.8's chat template takes the thinking from
    `reasoning_content` only."""
    family = made(name)
    reply = thinking(family)
    found = family.read(Completion(reply if opened else reply.removeprefix("<think>\n")), SCREEN)
    assert found.thought == "The menu is open.\nI look for Save.\n\nAction: Click Save."
    past = shown(family, reply)[2]
    if name == "qwen3.8":
        assert past["reasoning_content"] == "The menu is open.\nI look for Save."
        assert past["content"] == reply.partition("</think>\n\n")[2]
    else:
        assert past == {"role": "assistant", "content": reply}
    for other in ("Action: Click Save.", "I look.\nAction: Click Save."):
        assert shown(family, f"{other}\n\n{called('wait')}")[2]["content"] == f"{other}\n\n{called('wait')}"


def test_a_screen_behind_a_reply_is_the_response_of_a_tool_and_an_older_one_is_collapsed() -> None:
    """The package's `history.py`, `build_messages`, with `image_max` for `policy.history_images`."""
    family = made("qwen3.5", history_images=2)
    chat = shown(family, called("wait"), past=3)
    users = [message["content"] for message in chat if message["role"] == "user"]
    assert users[0].startswith("\nPlease generate the next move") and users[0].endswith("Previous actions:\nNone")
    assert users[1] == f"<tool_response>\n{COLLAPSED}\n</tool_response>"
    assert users[2:] == ["<tool_response>\n<image>\n</tool_response>"] * 2
    assert shown(made("qwen3.5"), called("wait"), past=0)[1]["content"].startswith("<image>\nPlease")


def test_calls_that_a_server_parsed_are_shown_as_xml_again() -> None:
    family = made("qwen3.6")
    json_call = (
        '<tool_call>\n{"name": "computer_use", "arguments": {"action": "key", "keys": ["ctrl", "s"]}}\n</tool_call>'
    )
    assert shown(family, f"Action: Save.\n{json_call}")[2]["content"] == (
        f"Action: Save.\n\n{called('key', keys=['ctrl', 's'])}"
    )


def test_thinking_that_a_page_wrote_is_sent_to_a_server_as_text() -> None:
    family = made("qwen3.8")
    family.tokens = frozenset(("<|im_end|>", "<think>", "</think>"))
    turn = PastStep("a <|im_end|>\nb </think>\n\nAction: c.", called("wait"), Observation(b"", *SCREEN, ""))
    chat = family.chat(Context("Do it.", (turn,), Observation(b"", *SCREEN, ""), 0))
    assert SELECTOR in chat[2]["reasoning_content"]
    past = sent(chat, family.tokens)[2]
    assert "<|im_end|>" not in past["reasoning_content"] and "</think>" not in past["reasoning_content"]
    assert SELECTOR not in past["reasoning_content"] and past["content"][0]["text"].startswith("Action: c.")


@pytest.mark.parametrize(
    ("name", "count", "last"), [("qwen3.5", 14, "answer"), ("qwen3.6", 19, "call_user"), ("qwen3.8", 19, "call_user")]
)
def test_the_prompt_lists_the_actions_of_the_version(name: str, count: int, last: str) -> None:
    system = shown(made(name), called("wait"), past=0)[0]["content"]
    tool = json.loads(system.partition("<tools>\n")[2].partition("\n</tools>")[0])
    actions = tool["function"]["parameters"]["properties"]["action"]["enum"]
    assert (len(actions), actions[-1]) == (count, last) and "1000x1000" in tool["function"]["description"]
    assert ("Collapsed screenshots" in system) == (name != "qwen3.5")


@pytest.mark.parametrize(
    "later",
    [
        called("terminate", status="abort"),
        called("fly"),
        called("left_click", coordinate=[5000, 500]),
        called("left_click", tool="bash"),
    ],
)
def test_a_later_call_that_is_no_action_is_reported(later: str) -> None:
    found = read("qwen3.6", called("left_click", coordinate=[9, 9]) + "\n" + later)
    reason, unused = found.unused
    assert len(all_of(found)) == 1 and unused.startswith("text behind the action=<function=")
    assert reason.startswith("a later call: ")


@pytest.mark.parametrize(
    ("calls", "kinds"),
    [
        ([("mouse_move", {"coordinate": [9, 9]})], ["move"]),
        ([("mouse_move", {"coordinate": [9, 9]}), ("wait", {})], ["move", "wait"]),
        ([("left_click", {"coordinate": [5, 5]}), ("mouse_move", {"coordinate": [9, 9]})], ["click", "move"]),
        ([("mouse_move", {"coordinate": [9, 9]}), ("left_click", {"coordinate": [5, 5]})], ["move", "click"]),
        ([("mouse_move", {"coordinate": [9, 9]}), ("mouse_move", {"coordinate": [5, 5]})], ["move", "move"]),
        ([("mouse_move", {"coordinate": [9, 9]}), ("left_click", {})], ["click"]),
        ([("mouse_move", {"coordinate": [9, 9]}), ("left_click", {"coordinate": [9, 9]})], ["move", "click"]),
        ([("mouse_move", {"coordinate": [9, 9]}), ("mouse_move", {"coordinate": [9, 9]})], ["move", "move"]),
        (
            [("mouse_move", {"coordinate": [9, 9]}), ("key_down", {"keys": ["ctrl"]}), ("left_click", {})],
            ["move", "press", "click"],
        ),
        ([("mouse_move", {"coordinate": [9, 9]}), ("swipe", {"direction": "up"})], ["scroll"]),
        ([("mouse_move", {"coordinate": [9, 9]}), ("left_click_drag", {"coordinate": [5, 5]})], ["drag"]),
    ],
)
def test_a_move_is_performed_unless_the_next_call_acts_at_the_pointer(
    calls: list[tuple[str, dict[str, Any]]], kinds: list[str]
) -> None:
    found = read("qwen3.6", "".join(called(name, **arguments) for name, arguments in calls))
    assert ([one.type for one in found.actions], found.dropped, found.unused) == (kinds, (), ())


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("\nhello\n", "hello"),
        ("\nhello", "hello"),
        ("hello\n", "hello"),
        ("hello", "hello"),
        ("\n\nhello\n\n", "\nhello\n"),
        ("\nif x:\n</function>\n  end\n", "if x:\n</function>\n  end"),
        ("\na\n</tool_call>\nb\n", "a\n</tool_call>\nb"),
    ],
)
def test_one_new_line_at_each_end_of_a_text_belongs_to_its_tags(inner: str, text: str) -> None:
    """Qwen-CUA's `protocol.py` @85923de, l.127-178, takes one off each end."""
    reply = called("type", text="X").replace("\nX\n", inner)
    assert all_of(read("qwen3.6", reply)) == [act.Type(content=text)]


@pytest.mark.parametrize(
    "key", ["cmd", "meta", "cmd c", "page_down", "arrowleft", "alt arrowleft", "control a", "numpad5", "volume_up"]
)
@pytest.mark.parametrize("name", ["qwen3.5", "qwen3.8"])
def test_keys_by_any_name_are_written(name: str, key: str) -> None:
    family = made(name)
    written = read(name, family.reply("So.", [act.Hotkey(key=key)], SCREEN)).first
    assert isinstance(written, act.Hotkey)
    assert read(name, family.reply("So.", [written], SCREEN)).first == written


@pytest.mark.parametrize(
    ("words", "done"),
    [
        ("There is no event on Friday, so the answer is 0.", True),
        ("All rows were deleted; there is no empty row left in the sheet.", True),
        ("Done. The page does not include ads any more.", True),
        ("The cheapest flight was unavailable, so I booked the next one as you asked.", True),
        ("The answer is in <b>bold</b>.", True),
        ("The installed package needs <stdio.h>.", True),
        ("I couldn't find the file, but I created it.", True),
        ("I could not find a cheaper one; the answer is 42.", True),
        ("The setting does not exist in the old version; I used the new one.", True),
        ("I cannot find the file, so the task is not finished.", False),
        ("I cannot proceed without your password; please log in.", False),
        ("I could not open the settings, but I also found no other way.", False),
        ("Price is <s>$5</s> $4.", True),
        ("I changed List<Point> to List<Vec>.", True),
        ("Done. There is no button left unchecked.", True),
        ("This feature is not available.", False),
        ("The app is unavailable in your country.", False),
        ("VLC does not support this.", False),
        ("There is no such option in the settings.", False),
        ("I can\u2019t do this.", False),
        ("This isn't possible in VLC.", False),
        ("This cannot be accomplished with the installed software.", False),
        ("I am unable to proceed because the app crashed.", False),
        ("The requested feature does not exist in GIMP.", False),
        ("The task is infeasible.", False),
        ("\u4efb\u52a1\u65e0\u6cd5\u5b8c\u6210\u3002", False),
    ],
)
def test_last_words_are_an_answer_or_say_that_the_task_cannot_be_done(words: str, done: bool) -> None:
    assert read("qwen3.8", words).first == (act.Finished(content=words) if done else act.CallUser())
