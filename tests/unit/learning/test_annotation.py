"""Thoughts by template: a click says what it is aimed at."""

from datetime import UTC, datetime

import pytest

from learning.annotation import aimed_at, thought_annotation
from schemas.action import Action, Click, Type, to_json
from schemas.observation import Element

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROW = Element("a row", "other", (0.0, 0.0, 1.0, 0.5), interactive=False)
OKAY = Element("Okay", "button", (0.1, 0.1, 0.3, 0.2), interactive=True)
FIELD = Element("", "text field", (0.5, 0.1, 0.9, 0.2), interactive=True)
PAGE = (ROW, OKAY, FIELD)


def thought_of(action: Action, said: str = "") -> str | None:
    step = {"trajectory_id": "t", "step": 0, "iteration": 0, "thought": said, "action": to_json(action)}
    made = thought_annotation(step, PAGE, NOW)
    return made.thought if made else None


def test_a_click_is_aimed_at_the_smallest_thing_around_its_place() -> None:
    assert aimed_at(0.2, 0.15, PAGE) == "Okay"
    assert aimed_at(0.4, 0.15, PAGE) == "a row"
    assert aimed_at(0.4, 0.9, PAGE) == ""


def test_a_thing_without_a_name_is_called_by_its_kind() -> None:
    assert aimed_at(0.7, 0.15, PAGE) == "text field"


def test_what_can_be_clicked_comes_before_what_merely_stands_there() -> None:
    label = Element("label", "text", (0.15, 0.12, 0.25, 0.18), interactive=False)
    assert aimed_at(0.2, 0.15, [label, OKAY]) == "Okay"


@pytest.mark.parametrize("name", ["a paragraph that goes on", 'a "quote"', "two\nlines"])
def test_a_name_that_a_thought_cannot_say_is_passed_over(name: str) -> None:
    assert aimed_at(0.2, 0.15, [ROW, Element(name, "text", OKAY.box, interactive=False)]) == "a row"


def test_thoughts_by_template_name_what_a_click_is_aimed_at() -> None:
    assert thought_of(Click(x=0.2, y=0.15)) == 'Click "Okay".'
    assert thought_of(Click(x=0.4, y=0.9)) == "Click it."
    assert thought_of(Type(content="x")) == "Type it."


def test_a_step_keeps_the_thought_it_has() -> None:
    assert thought_of(Click(x=0.2, y=0.15), said="The second one.") is None
