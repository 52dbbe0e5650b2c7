"""Keys as Chromium takes them."""

import pytest

from environments.chromium.sandbox import event_of, key_writing, modifier_of
from environments.keys import key_of, keys_of
from schemas.failure import ActionFailure
from schemas.keyboard import KEYS, key_named

SHIFT, CTRL = modifier_of(KEYS["shift"]), modifier_of(KEYS["ctrl"])


def test_a_letter_writes_itself_and_nothing_while_a_modifier_is_held() -> None:
    assert event_of(key_writing("q"), "keyDown", 0)["text"] == "q"
    pressed = event_of(key_writing("a"), "keyDown", CTRL)
    assert pressed["type"] == "rawKeyDown"
    assert "text" not in pressed


@pytest.mark.parametrize(
    ("name", "written"),
    [("a", "A"), ("1", "!"), ("2", "@"), ("'", '"'), ("/", "?"), ("`", "~"), ("A", "A"), ("!", "!")],
)
def test_with_shift_a_key_writes_its_other_character(name: str, written: str) -> None:
    event = event_of(key_named(name), "keyDown", SHIFT)
    assert (event["key"], event["text"]) == (written, written)
    assert event_of(key_named(name), "keyDown", SHIFT | CTRL)["key"] == written


def test_a_key_of_the_number_pad_writes_its_digit() -> None:
    event = event_of(key_named("num7"), "keyDown", 0)
    assert (event["text"], event["code"], event["windowsVirtualKeyCode"]) == ("7", "Numpad7", 103)
    assert (event["location"], event["isKeypad"]) == (3, True)


def test_a_line_break_is_the_enter_key() -> None:
    assert key_writing("\n") == key_named("enter")
    assert event_of(key_writing("\n"), "keyDown", SHIFT)["text"] == "\r"


def test_a_key_that_no_keyboard_has_is_the_policys_failure() -> None:
    for read in (keys_of, key_of):
        with pytest.raises(ActionFailure, match="hyperspace"):
            read("hyperspace")
