"""A thought is kept or turned away with a reason."""

import pytest

from curation.thoughts import ThoughtLimits, fault_of, names_place, patterns_of
from models.policy import Context
from models.thinkers.thinker import ThinkerCase, ThinkerThought
from schemas.action import Click, Drag, Type
from schemas.observation import Element, Observation
from tests.fixtures.sentences import Sentences

BUTTON = Element("red", "button", (0.1, 0.4, 0.3, 0.5), True)
CLICK = Click(x=0.15, y=0.45)
CASE = ThinkerCase(Context("Click.", (), Observation(b"", 160, 210, "Click.", (BUTTON,)), 0), CLICK)
LIMITS = ThoughtLimits(longest=60, phrases=3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Red is what is asked for.", ""),
        (" ", "empty"),
        ("x" * 61, "too long"),
        ("I go.\nAction: click(start_box='(1,2)')", "holds an action"),
        ("again and again and again and again and again and", "says the same again and again"),
        ("The button lies at (150, 450).", "names the coordinates"),
        ("It is at 0.15, 0.45.", "names the coordinates"),
        ("At pixel 24, 94 there is red.", "names the coordinates"),
        ("Step 2 of 3 is red.", ""),
    ],
)
def test_a_thought_that_explains_an_action_is_turned_away_with_a_reason(text: str, reason: str) -> None:
    assert fault_of(ThinkerThought(text), CASE, hidden=False, limits=LIMITS) == reason


def test_a_bootstrapped_thought_is_kept_where_it_led_to_the_same_element(sentence: Sentences) -> None:
    def fault(action: Click | Type | None) -> str:
        return fault_of(ThinkerThought("Red.", action=action), CASE, hidden=True, limits=LIMITS)

    assert fault(Click(x=0.28, y=0.41)) == ""
    assert fault(Click(x=0.6, y=0.45)) == fault(Type(content="red")) == "led to another action"
    sentence(fault(None))
    assert fault_of(ThinkerThought("", failure="503"), CASE, hidden=True, limits=LIMITS) == "no answer: 503"


def test_both_ends_of_a_drag_are_places() -> None:
    drag = Drag(x=0.1, y=0.2, to_x=0.3, to_y=0.4)
    assert names_place("from here to (300,400)", drag, (160, 210))
    assert not names_place("from 10 to 20", drag, (160, 210))


def test_hundredths_and_numbers_with_their_whole_are_places_too() -> None:
    click = Click(x=0.488, y=0.638)
    assert names_place("I click at (48.8%, 63.8%).", click, (160, 210))
    assert names_place("x is 488 of 1000 and y is 638 of 1000", click, (160, 210))
    assert not names_place("48 of 64 boxes", click, (160, 210))


def test_patterns_are_those_that_the_author_names_else_those_that_the_words_tell() -> None:
    assert patterns_of(ThinkerThought("First red.", ("reflection",))) == ["reflection"]
    told = patterns_of(ThinkerThought("Red is done. I still have to click blue. Perhaps it is below."))
    assert told == ["long_term_consistency", "milestone_recognition", "trial_and_error"]
    assert patterns_of(ThinkerThought("I click red.")) == []
