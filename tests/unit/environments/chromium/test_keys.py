"""Keys by their names."""

import pytest

from environments.chromium.keys import key_named, key_writing, modifier_of
from schemas.failure import ActionFailure


def test_a_key_has_many_names():
    assert key_named("enter") == key_named("Return")
    assert key_named("arrowdown") == key_named("down")
    assert key_named("esc").key == "Escape"


def test_a_letter_writes_itself_and_nothing_while_a_modifier_is_held():
    assert key_writing("q").event("keyDown", 0)["text"] == "q"
    pressed = key_writing("a").event("keyDown", modifier_of("ctrl"))
    assert pressed["type"] == "rawKeyDown"
    assert "text" not in pressed


def test_a_line_break_is_the_enter_key():
    assert key_writing("\n") == key_named("enter")


def test_a_key_that_no_keyboard_has_is_the_policys_failure():
    with pytest.raises(ActionFailure, match="hyperspace"):
        key_named("hyperspace")
