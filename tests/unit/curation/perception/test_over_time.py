"""Questions about a recording have answers that its actions, elements and pixels prove."""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import pytest

from curation.perception.over_time import Film, clips, in_words, over_time
from curation.video import changed_box
from schemas.action import Click, Finished, Hotkey, Press, Release, Scroll, Type, to_json
from schemas.observation import Element
from schemas.table import utc_now
from schemas.tables.annotation import Annotation
from schemas.tables.recording import Recording
from schemas.tables.step import Step
from tests.unit.curation.films import screen

FRAMES = {"none": screen(), "blue": screen("blue"), "green": screen("blue", "green"), "red": screen("red")}


def step(number: int, *actions: Any, error: str | None = None) -> Step:
    return Step.model_construct(step=number, actions=[*map(to_json, actions)], action_error=error)


STEPS = (
    step(0, Click(x=0.1, y=0.1)),
    step(1, Type(content="hi\n")),
    step(2, Scroll(x=0.5, y=0.5, direction="down")),
    step(3, Finished()),
)
LOGGED = {"times": [0.0, 3.0, 8.0], "frames": ["none", "blue", "green"], "step_times": [2.5, 5.0, 7.5, 9.5]}


def film(
    name: str, steps: Sequence[Step] = (), elements: dict[str, Sequence[Element]] | None = None, **fields: Any
) -> Film:
    digest = hashlib.sha256(name.encode()).hexdigest()[:24]
    row = {"times": [0.0], "frames": ["none"], "step_times": [], "seconds": 10.0, "rate": 10.0, **fields}
    recording = Recording.model_construct(recording_id=digest, trajectory_id=digest, iteration=0, **row)
    return Film(recording, steps, elements or {}, lambda one, other: changed_box(FRAMES[one], FRAMES[other]))


def asked(one: Film, most: int = 20, clip_s: float = 30.0) -> list[Annotation]:
    return over_time(one, most, clip_s, utc_now())


def among(rows: Sequence[Annotation], begin: str) -> list[Annotation]:
    return [row for row in rows if (row.question or "").startswith(begin)]


def test_actions_are_asked_for_in_their_order() -> None:
    found = asked(film("a", STEPS, **LOGGED))
    (done,) = among(found, "What did the user do")
    assert done.thought == 'A click in the upper left, then the text "hi" typed and submitted, then a scroll down.'
    (order,) = among(found, "In what order did these happen?")
    named = dict(re.findall(r"([A-D]): ([^;.]+)", order.question or ""))
    assert [named[letter] for letter in order.thought.rstrip(".").split(", ")] == [
        "a click in the upper left", 'the text "hi" typed and submitted', "a scroll down",
    ]  # fmt: skip
    assert {row.author for row in (done, order)} == {"play"}


@pytest.mark.parametrize("name", ["a", "b", "c", "d", "e"])
def test_what_changed_is_read_from_the_frames_at_the_two_times(name: str) -> None:
    one = film(name, **LOGGED)
    parts = {("none", "blue"): "The upper left.", ("blue", "green"): "The lower right."}
    rows = among(asked(one), "What changed")
    for row in rows:
        times = [float(found) for found in re.findall(r"([\d.]+) s", row.question or "")]
        before, after = map(one.shown, times)
        if before == after:
            assert row.thought == "Nothing."
        else:
            assert row.thought == parts[before, after] and row.author == "pixels"


def test_a_pages_elements_say_what_changed_in_words() -> None:
    field = Element("Name", "text field", (0.1, 0.1, 0.4, 0.2), True)
    elements = {"none": [field], "blue": [Element("Name", "text field", field.box, True, "Ada")]}
    found = [
        row
        for name in "abcdefgh"
        for row in among(asked(film(name, (), elements, times=[0.0, 5.0], frames=["none", "blue"])), "What changed")
    ]
    assert {row.thought for row in found} == {"Nothing.", 'text field "Name" now holds "Ada".'}
    assert {row.author for row in found if row.thought != "Nothing."} == {"page"}


def test_parts_of_the_screen_are_asked_for_in_the_order_of_their_changes() -> None:
    (row,) = among(asked(film("a", times=[0.0, 3.0, 8.0], frames=["none", "blue", "green"])), "In what order")
    named = dict(re.findall(r"([A-D]): ([^;.]+)", row.question or ""))
    assert [named[letter] for letter in row.thought.rstrip(".").split(", ")] == ["the upper left", "the lower right"]


def test_the_time_of_a_single_change_is_asked_for() -> None:
    (row,) = among(asked(film("a", times=[0.0, 3.25], frames=["none", "blue"])), "When does")
    assert (row.thought, row.begin_s, row.end_s) == ("At 3.2 s.", 0.0, 10.0)
    assert not among(asked(film("a", times=[0.0, 3.0, 8.0], frames=["none", "blue", "green"])), "When does")


def test_times_count_from_the_beginning_of_a_clip() -> None:
    one = film("a", times=[0.0, 60.0], frames=["none", "blue"], seconds=120.0)
    ((begin, end),) = clips(one, 10.0)
    assert 0 < begin < 60.0 < end and end - begin == pytest.approx(10.0)
    (row,) = among(asked(one, clip_s=10.0), "When does")
    assert row.thought == f"At {60.0 - begin:.1f} s." and (row.begin_s, row.end_s) == (begin, end)


def test_the_same_recording_has_the_same_questions_and_at_most_as_many_as_asked_for() -> None:
    one, again = (asked(film("a", STEPS, **LOGGED), 3) for _ in range(2))
    assert len(one) == 3
    assert [row.model_copy(update={"created_at": None}) for row in one] == [
        row.model_copy(update={"created_at": None}) for row in again
    ]
    assert len({row.annotation_id for row in one}) == 3


def test_a_recording_too_short_to_sample_has_no_question() -> None:
    assert asked(film("a", seconds=1.5)) == []


def test_actions_in_words_have_no_coordinates_and_leave_out_failed_ones() -> None:
    held = step(0, Press(key="ctrl"), Click(x=0.9, y=0.9), Release(key="ctrl"))
    assert in_words(held) == "a click in the lower right"
    assert in_words(step(0, Hotkey(key="ctrl c"))) == "the keys ctrl c pressed"
    assert in_words(step(0, Type(content="x" * 200))) == "a text typed"
    assert in_words(step(0, Click(x=0.1, y=0.1), error="covered")) == ""
    assert in_words(step(0, Click(x=0.1, y=0.1), Click(x=0.9, y=0.9))) == ""
