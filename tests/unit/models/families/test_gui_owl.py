"""GUI-Owl 1.5: prompts, actions and places as X-PLUG/MobileAgent @11cea57 publishes them, in `Mobile-Agent-v3.5`."""

import json
from typing import Any

import pytest

from models.completion import Completion
from models.families.outside import unmarked
from models.families.screen import smart_resize
from models.policy import Context
from schemas import action as act
from schemas.action import Action
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from tests.unit.models.families.test_families import chat, made

DESKTOP, PHONE = (1920, 1080), (1080, 2400)
TOOLS = {"computer": "computer_use", "mobile": "mobile_use"}


def called(template: str, **arguments: Any) -> str:
    call = json.dumps({"name": TOOLS[template], "arguments": arguments})
    return f"Action: I do it.\n<tool_call>\n{call}\n</tool_call>"


def read(template: str, reply: str, screen: tuple[int, int] = DESKTOP) -> Completion:
    return made("gui-owl-1.5", template).read(Completion(reply), screen)


@pytest.mark.parametrize("template", ["computer", "mobile"])
@pytest.mark.parametrize(
    ("place", "desktop", "phone"), [([500, 500], (960, 544), (544, 1200)), ([447, 81], (858, 88), (486, 194))]
)
def test_a_place_is_a_thousandth_of_the_screen(
    template: str, place: list[int], desktop: tuple[int, int], phone: tuple[int, int]
) -> None:
    """`rescale_coordinates` of `run_gui_owl_1_5_for_pc.py` and `_for_mobile.py`: its pixels are those of a picture in
    multiples of 16, which it clicks on the screen, up to 8 pixels off. Here a place is a fraction of the screen."""
    for screen, theirs in ((DESKTOP, desktop), (PHONE, phone)):
        rows, columns = smart_resize(screen[1], screen[0], 16, 3136, 1003520 * 200)
        assert tuple(int(v / 1000 * side) for v, side in zip(place, (columns, rows), strict=True)) == theirs
        found = read(template, called(template, action="click", coordinate=place), screen)
        assert found.first == act.Click(x=place[0] / 1000, y=place[1] / 1000) and not found.unused
        assert all(abs(v / 1000 * side - at) <= 8 for v, side, at in zip(place, screen, theirs, strict=True))


def test_a_swipe_goes_from_place_to_place() -> None:
    for name in ("swipe", "scroll"):
        found = read("mobile", called("mobile", action=name, coordinate=[500, 800], coordinate2=[500, 200]), PHONE)
        assert found.first == act.Drag(x=0.5, y=0.8, to_x=0.5, to_y=0.2)


def test_of_two_calls_in_a_reply_the_first_is_performed() -> None:
    two = called("mobile", action="wait") + "\n" + called("mobile", action="open", text="Maps").partition("\n")[2]
    found = read("mobile", two)
    assert (found.first, len(found.actions), (*found.actions, *found.dropped)[1:]) == (
        act.Wait(),
        1,
        (act.OpenApp(app_name="Maps"),),
    )


CLICK = {"coordinate": [500, 300]}


@pytest.mark.parametrize(
    ("arguments", "action", "unused"),
    [
        ({"action": "key", "keys": ["ctrl", "c"]}, act.Hotkey(key="ctrl c"), ()),
        ({"action": "key", "keys": ["arrowleft"]}, act.Hotkey(key="arrowleft"), ()),
        ({"action": "hotkey", "keys": "enter"}, act.Hotkey(key="enter"), ()),
        ({"action": "type", "text": "a\nb"}, act.Type(content="a\nb"), ()),
        ({"action": "left_click", **CLICK}, act.Click(x=0.5, y=0.3), ()),
        ({"action": "click", **CLICK}, act.Click(x=0.5, y=0.3), ()),
        ({"action": "right_click", **CLICK}, act.RightSingle(x=0.5, y=0.3), ()),
        ({"action": "right click", **CLICK}, act.RightSingle(x=0.5, y=0.3), ()),
        ({"action": "double_click", **CLICK}, act.LeftDouble(x=0.5, y=0.3), ()),
        ({"action": "computer_double_click", **CLICK}, act.LeftDouble(x=0.5, y=0.3), ()),
        ({"action": "scroll", "pixels": -3, **CLICK}, act.Scroll(x=0.5, y=0.3, direction="down"), ("pixels=-3",)),
        ({"action": "scroll", "pixels": 3}, act.Scroll(direction="up"), ("pixels=3",)),
        ({"action": "hscroll", "pixels": 3}, act.Scroll(direction="right"), ("pixels=3",)),
        ({"action": "wait", "time": 2}, act.Wait(seconds=2), ()),
        ({"action": "mouse_move", **CLICK}, act.Move(x=0.5, y=0.3), ()),
        ({"action": "middle_click", **CLICK}, act.MiddleSingle(x=0.5, y=0.3), ()),
        ({"action": "triple_click", **CLICK}, act.TripleClick(x=0.5, y=0.3), ()),
        ({"action": "open app", "app_name": "Files"}, act.OpenApp(app_name="Files"), ()),
        ({"action": "answer", "text": "42"}, act.Finished(content="42"), ()),
        ({"action": "interact", "text": "Log in"}, act.CallUser(content="Log in"), ()),
        ({"action": "call_user"}, act.CallUser(), ()),
        ({"action": "terminate", "status": "success"}, act.Finished(), ()),
        ({"action": "terminate", "status": "failure"}, act.CallUser(), ()),
        ({"action": "stop"}, act.Finished(), ()),
        ({"action": "done"}, act.Finished(), ()),
    ],
)
def test_an_action_of_the_desktop_is_read(arguments: dict[str, Any], action: Action, unused: tuple[str, ...]) -> None:
    """`execute_action` of `computer_use/run_gui_owl_1_5_for_pc.py`, and the tool of `computer_use/utils.py`."""
    found = read("computer", called("computer", **arguments))
    assert (found.first, found.unused, found.thought) == (action, unused, "I do it."), found.error


def test_a_drag_begins_where_the_mouse_was_moved_to() -> None:
    moved = called("computer", action="mouse_move", coordinate=[100, 200])
    for name in ("drag", "left_click_drag"):
        found = read("computer", moved + called("computer", action=name, coordinate=[300, 400]))
        assert found.first == act.Drag(x=0.1, y=0.2, to_x=0.3, to_y=0.4)
        alone = read("computer", called("computer", action=name, coordinate=[300, 400]))
        assert (*alone.actions, *alone.dropped) == (act.MouseDown(), act.MouseUp(x=0.3, y=0.4)) and len(
            alone.actions
        ) == 2


@pytest.mark.parametrize(
    ("arguments", "action", "unused"),
    [
        ({"action": "key", "text": "volume_up"}, act.Hotkey(key="volume_up"), ()),
        ({"action": "key", "text": "volume_down"}, act.Hotkey(key="volume_down"), ()),
        ({"action": "key", "text": "power"}, act.Hotkey(key="power"), ()),
        ({"action": "key", "text": "KEYCODE_CAMERA"}, act.Hotkey(key="camera"), ()),
        ({"action": "key", "text": "clear"}, act.Hotkey(key="clear"), ()),
        ({"action": "key", "text": "home"}, act.PressHome(), ()),
        ({"action": "key", "text": "back"}, act.PressBack(), ()),
        ({"action": "key", "text": "KEYCODE_APP_SWITCH"}, act.PressRecent(), ()),
        ({"action": "key", "text": "del"}, act.Hotkey(key="backspace"), ()),
        ({"action": "key", "text": "media_record"}, act.Hotkey(key="media_record"), ()),
        ({"action": "key", "text": "enter"}, act.Hotkey(key="enter"), ()),
        ({"action": "long_press", "time": 2, **CLICK}, act.LongPress(x=0.5, y=0.3, seconds=2), ()),
        ({"action": "long_press", "time": 20, **CLICK}, act.LongPress(x=0.5, y=0.3, seconds=5), ("time=20",)),
        ({"action": "system_button", "button": "Menu"}, act.PressMenu(), ()),
        ({"action": "type", "text": "你好"}, act.Type(content="你好"), ()),
        ({"action": "system_button", "button": "Back"}, act.PressBack(), ()),
        ({"action": "system_button", "button": "Home"}, act.PressHome(), ()),
        ({"action": "system_button", "button": "Enter"}, act.PressEnter(), ()),
        ({"action": "open", "text": "Maps"}, act.OpenApp(app_name="Maps"), ()),
        ({"action": "wait"}, act.Wait(), ()),
        ({"action": "answer", "text": "42"}, act.Finished(content="42"), ()),
        ({"action": "calluser", "text": "Log in"}, act.CallUser(content="Log in"), ()),
        ({"action": "terminate"}, act.Finished(), ()),
    ],
)
def test_an_action_of_the_phone_is_read(arguments: dict[str, Any], action: Action, unused: tuple[str, ...]) -> None:
    """`main` of `mobile_use/run_gui_owl_1_5_for_mobile.py`, and the tool of `mobile_use/utils.py`."""
    found = read("mobile", called("mobile", **arguments))
    assert (found.first, found.unused) == (action, unused), found.error


@pytest.mark.parametrize("name", ["gui-owl-1.5", "qwen2.5-vl", "qwen3-vl", "qwen3.5", "qwen3.8"])
@pytest.mark.parametrize("key", ["power", "camera", "volumeup", "clear", "home", "end", "delete", "backspace", "enter"])
def test_a_key_event_of_a_phone_is_written_as_it_is_read(name: str, key: str) -> None:
    family = made(name, "mobile")
    for action in (act.Hotkey(key=key), act.PressRecent()):
        assert family.read(Completion(family.reply("I press it.", [action], PHONE)), PHONE).actions == (action,)


def test_a_key_event_that_no_keyboard_has_is_refused_on_a_computer() -> None:
    found = read("computer", called("computer", action="key", text="camera"))
    assert found.first is None and "there is no key 'camera'" in (found.error or "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"action": "system_button", "button": "Power"}, "there is no action for the button 'Power'"),
        ({"action": "open"}, "`text` is missing"),
        ({"action": "click", "coordinate": [500, 1001]}, "click.y: should be less than or equal to 1"),
    ],
)
def test_an_action_that_this_project_lacks_is_refused_by_its_name(arguments: dict[str, Any], problem: str) -> None:
    for template in TOOLS:
        found = read(template, called(template, **arguments))
        assert found.first is None and problem in (found.error or "")


def test_a_call_of_the_browsers_tool_is_refused() -> None:
    """`browser_use/prompts.py` names elements by the numbers drawn on them, which this project's screens lack."""
    reply = '<tool_call>\n{"name": "browser_use", "arguments": {"action": "click", "label": 3}}\n</tool_call>'
    assert "there is no tool 'browser_use'" in (read("computer", reply).error or "")
    with pytest.raises(UsageError, match=r"policy\.template"):
        made("gui-owl-1.5", "grounding")


@pytest.mark.parametrize(
    "call",
    [
        '{"name": "mobile_use", "arguments": {"action": "type", "text": "a }}\\nb"}}',
        '{"name": "mobile_use", "arguments": {"action": "type", "text": "a }}\nb"}}',
        "{'name': 'mobile_use', 'arguments': {'action': 'type', 'text': 'a }}\\nb', 'coordinate': None}}",
    ],
)
def test_calls_that_break_the_published_parsers_are_read(call: str) -> None:
    """`parse_action` for phones ends a call at the first `}}` before a line break, and needs JSON; `extract_tool_calls`
    for desktops needs a Python literal, so it skips a call with `true` or `null`."""
    for end in ("\n</tool_call>", "</tool_call>", "\n", ""):
        assert read("mobile", f"Action: x\n<tool_call>\n{call}{end}").first == act.Type(content="a }}\nb")
    json_only = called("computer", action="type", text="a", press_enter=True, coordinate=None)
    assert read("computer", json_only).first == act.Type(content="a\n")


@pytest.mark.parametrize("template", ["computer", "mobile"])
def test_the_prompt_has_the_text_first_and_the_last_steps_with_their_screens(template: str) -> None:
    """`build_messages` of `computer_use/utils.py` and `mobile_use/utils.py`: four steps with screens, others as text.
    Today's date, which the phone's client adds, is left out, as in the repository's AndroidWorld agent."""
    family = made("gui-owl-1.5", template, history_images=5)
    roles, texts = zip(*chat(family, past=6), strict=True)
    assert roles == ("system", *("user", "assistant") * 4, "user")
    assert texts[0].startswith("# Tools\n\nYou may call") and "resolution is 1000x1000" in texts[0]
    assert texts[1] == (
        "Please generate the next move according to the UI screenshot, instruction and previous actions.\n\n"
        "Instruction: Do it.\n\nPrevious actions:\nStep 1: t0\nStep 2: t1<1002>"
    )
    assert texts[2].startswith("Action: t2\n<tool_call>\n{") and texts[3] == "<1003>" and texts[-1] == "<1006>"
    assert chat(family, past=0)[1][1].endswith("Previous actions:\nNone<1000>")


def test_a_step_is_listed_by_its_sentence() -> None:
    screen, family = Observation(b"", *DESKTOP, ""), made("gui-owl-1.5")
    found = family.read(Completion(f"<thinking>\nhm\n</thinking>{called('computer', action='wait')}"), DESKTOP)
    assert found.thought == "I do it."
    turn = PastStep(found.thought, found.action_text, screen)
    asked = family.messages(Context("Do it.", (turn,), screen, 0))[1]["content"][0]["text"]
    assert asked.endswith("Previous actions:\nStep 1: I do it.")


@pytest.mark.parametrize("template", ["computer", "mobile"])
def test_an_earlier_step_is_listed_by_the_words_before_its_call_or_by_its_whole_reply(template: str) -> None:
    """`build_messages` of `computer_use/utils.py` and `mobile_use/utils.py`: a reply without `Action:` is listed
    whole."""
    labelled = called(template, action="wait")
    bare = labelled.removeprefix("Action: I do it.\n")
    screen, family = Observation(b"", *DESKTOP, ""), made("gui-owl-1.5", template)
    for reply, listed in (
        (labelled, "I do it."),
        (f"Action: Do it.\nAnd more.\n{bare}", "Do it.\nAnd more."),
        (f"I look.\n{bare}", f"I look.\n{bare}"),
        (bare, bare),
    ):
        found = family.read(Completion(reply), DESKTOP)
        turn = PastStep(found.thought, found.action_text, screen, reply=reply)
        asked = family.messages(Context("Do it.", (turn,), screen, 0))[1]["content"][0]["text"]
        assert unmarked(asked).endswith(f"Previous actions:\nStep 1: {listed}") and "<tool_call>" not in asked


def test_a_question_has_the_text_before_the_screens() -> None:
    family, screen = made("gui-owl-1.5"), Observation(b"", *DESKTOP, "")
    head, asked = family.question("What?", [screen, screen], acts=True)
    assert head["role"] == "system" and [part["type"] for part in asked["content"]] == ["text", "image", "image"]
    assert len(family.question("What?", [screen])) == 1
