"""What an action becomes as a line of a phone's shell."""

import shlex
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.android.actions import line_of
from schemas import action as act
from schemas.failure import ActionFailure


def line(action: act.Action, keyboard: bool = False) -> str:
    return line_of(action, 1000, 2000, keyboard)


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("down", "500 1000 500 200"), ("up", "500 1000 500 1800"),
        ("right", "500 1000 100 1000"), ("left", "500 1000 900 1000"),
    ],
)  # fmt: skip
def test_a_scroll_shows_the_content_in_its_direction_so_the_finger_moves_against_it(
    direction: act.Direction, expected: str
) -> None:
    assert line(act.Scroll(x=0.5, y=0.5, direction=direction)) == f"input swipe {expected} 500"
    assert line(act.Scroll(direction=direction)) == f"input swipe {expected} 500"


def test_a_double_tap_needs_a_place() -> None:
    with pytest.raises(ActionFailure, match="a phone has no pointer, and the left_double has no place"):
        line(act.LeftDouble())


def test_a_scroll_near_an_edge_still_moves_the_whole_way() -> None:
    assert line(act.Scroll(x=0.5, y=0.0, direction="down")) == "input swipe 500 1000 500 200 500"
    assert line(act.Scroll(x=0.5, y=1.0, direction="up")) == "input swipe 500 1000 500 1800 500"


def test_a_scroll_keeps_off_the_edges_where_the_systems_gestures_begin() -> None:
    assert line(act.Scroll(x=0.5, y=0.98, direction="right")) == "input swipe 500 1800 100 1800 500"
    assert line(act.Scroll(x=0.5, y=0.01, direction="left")) == "input swipe 500 200 900 200 500"
    assert line(act.Scroll(x=0.99, y=0.5, direction="down")) == "input swipe 900 1000 900 200 500"


def test_touches_and_buttons() -> None:
    assert line(act.Click(x=1.0, y=0.25)) == "input tap 999 500"
    assert line(act.LeftDouble(x=0.5, y=0.5)) == "input tap 500 1000; input tap 500 1000"
    assert line(act.LongPress(x=0.5, y=0.5)) == "input swipe 500 1000 500 1000 1000"
    assert line(act.LongPress(x=0.5, y=0.5, seconds=2.5)) == "input swipe 500 1000 500 1000 2500"
    drag = act.Drag(x=0.1, y=0.1, to_x=0.2, to_y=0.2)
    assert line(drag) == "input swipe 100 200 200 400 1000"
    assert line_of(drag, 1000, 2000, False, "draganddrop") == "input draganddrop 100 200 200 400 1000"
    assert line(act.PressRecent()) == "input keyevent 187"
    events = [("power", 26), ("camera", 27), ("clear", 28), ("volume_up", 24), ("volume_down", 25), ("home", 122)]
    assert [line(act.Hotkey(key=name)) for name, _ in events] == [f"input keyevent {code}" for _, code in events]
    assert line(act.Hotkey(key="ctrl a")) == "input keycombination 113 29"
    assert line(act.Navigate(content="example.org/a b")) == (
        "am start -a android.intent.action.VIEW -d 'https://example.org/a b'"
    )


@pytest.mark.parametrize(
    "action",
    [act.Move(x=0, y=0), act.MiddleSingle(x=0, y=0), act.RightSingle(x=0, y=0), act.MouseDown(), act.Press(key="a"),
     act.Terminal(command="ls"), act.Hotkey(key="numlock"), act.Hotkey(key="media_record")],
)  # fmt: skip
def test_other_actions_are_refused(action: act.Action) -> None:
    with pytest.raises(ActionFailure, match=r"a phone (cannot perform|has no key)|no key 'media_record'"):
        line(action)


def typed_by_input(written: str) -> str:
    """What `input` types: a `%s` becomes a space."""
    found = ""
    for command in filter(None, written.split(" && ")):
        verb, kind, text = shlex.split(command)
        assert verb == "input"
        found += {"66": "\n", "61": "\t"}[text] if kind == "keyevent" else text.replace("%s", " ")
    return found


@given(st.text("ab %s$`\"'\\;|<>*~#-\n\t", max_size=200).filter(lambda text: " && " not in text))
def test_ascii_text_is_typed_as_it_is(text: str) -> None:
    written = line(act.Type(content=text))
    assert (written == ":") if not text else (typed_by_input(written) == text)


def test_text_in_any_script_needs_adbkeyboard() -> None:
    with pytest.raises(ActionFailure, match="install ADBKeyboard"):
        line(act.Type(content="Grüße"))
    first, enter, last = line(act.Type(content="世界 🙂\n'x'"), keyboard=True).split(" && ")
    assert [b64decode(one.split()[-1]).decode() for one in (first, last)] == ["世界 🙂", "'x'"]
    assert enter == "input keyevent 66"
