"""Gates that look at one trajectory alone: what each finds, at which step, and what it lets pass."""

from typing import Any

import pytest

from curation.gates.actions import ActionsGate
from curation.gates.gate import GateContext, GateResult
from curation.gates.repeats import LoopOptions, LoopsGate, RedundantGate, RedundantOptions
from curation.gates.transient import TransientGate, TransientOptions
from curation.pictures import BITS, Detail
from schemas.config.section import Section
from schemas.tables.step import Step
from tests.fixtures.sentences import Sentences
from tests.unit.curation.gates.test_gates import steps, trajectory

CLICKS = [f'{{"type":"click","x":0.{number},"y":0.5}}' for number in range(1, 10)]
BUSY = int("5" * (BITS // 4), 16)
"""A hash of a screen with much on it."""


def acting(rows: list[Step], *actions: str) -> list[Step]:
    return [row.model_copy(update={"actions": [action]}) for row, action in zip(rows, actions, strict=True)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"actions": []}, "holds no action"),
        ({"action_error": "the screen is gone"}, "could be performed: the screen is gone"),
        ({"actions": ['{"type":"click","x":1.2,"y":0.5}']}, "points outside the screen"),
        ({"actions": ['{"type":"drag","x":0.1,"y":0.5,"to_x":0.2,"to_y":-0.1}']}, "points outside the screen"),
        ({"x": 1.01}, "points outside the screen"),
        ({"actions": ['{"type":"click","x":"left","y":0.5}']}, "unreadable action"),
        ({"actions": ["click(1, 2)"]}, "unreadable action"),
        ({"actions": ['{"type":"hover","x":0.1,"y":0.5}']}, "unreadable action"),
    ],
)
def test_an_action_that_cannot_be_read_or_performed_or_misses_the_screen_is_the_error(
    changes: dict[str, Any], said: str
) -> None:
    rows = [*steps("a"), steps("a", "b", **changes)[1]]
    found = ActionsGate(Section()).check(trajectory(), rows, GateContext())
    assert (found.passed, found.error_step) == (False, 1) and said in found.reason
    assert ActionsGate(Section()).check(trajectory(), steps("a", "b"), GateContext()).passed


def loop(rows: list[Step], **options: int) -> GateResult:
    return LoopsGate(LoopOptions(**options)).check(trajectory(), rows, GateContext())


def test_a_cycle_of_several_screens_is_a_loop_from_where_it_begins() -> None:
    tour = acting(steps("start", *"abcabcabc", "end"), CLICKS[8], *CLICKS[:3] * 3, CLICKS[8])
    found = loop(tour)
    assert (found.passed, found.error_step) == (False, 1) and "same 3 steps" in found.reason
    assert loop(tour, max_cycles=3).passed
    assert loop(tour[:7]).passed  # twice is no loop


def test_the_same_screens_with_other_actions_are_no_loop() -> None:
    assert loop(acting(steps(*"ababab"), *CLICKS[:6])).passed


def test_saying_again_that_it_is_done_is_no_loop() -> None:
    ended = acting(steps(*"aaaaaaa"), *['{"content":"","type":"finished"}'] * 7)
    assert loop(ended).passed and not loop(acting(steps(*"aaaaaaa"), *CLICKS[:1] * 7)).passed


def redundant(rows: list[Step], **options: Any) -> GateResult:
    return RedundantGate(RedundantOptions(**options)).check(trajectory(), rows, GateContext())


def test_who_does_one_thing_after_the_other_and_changes_nothing_is_stuck() -> None:
    stuck = acting(steps("a", *"bbbbbb"), *CLICKS[:7])
    found = redundant(stuck)
    assert (found.passed, found.error_step) == (False, 1) and "5 actions in a row" in found.reason
    assert redundant(stuck[:5]).passed and redundant(stuck, max_run=5).passed


def test_a_long_trajectory_that_mostly_goes_in_circles_is_turned_away_and_a_short_one_is_not(
    sentence: Sentences,
) -> None:
    circles = steps(*"abcdeabcdea")
    assert not redundant(circles).passed
    sentence(redundant(circles).reason)
    assert redundant(circles, max_share=0.95).passed and redundant(steps(*"abcda")).passed


def transient(rows: list[Step], **looks: int) -> GateResult:
    return TransientGate(TransientOptions()).check(trajectory(), rows, GateContext(looks=looks))


def test_an_action_on_a_blank_screen_is_turned_away_and_waiting_for_it_is_not() -> None:
    rows = steps("a", "b")
    assert transient(rows, a=BUSY, b=BUSY).passed and transient(rows).passed
    found = transient(rows, a=BUSY, b=0b111)
    assert (found.passed, found.error_step) == (False, 1) and "blank" in found.reason
    waited = [rows[0], rows[1].model_copy(update={"actions": ['{"type":"wait"}']})]
    assert transient(waited, a=BUSY, b=0b111).passed


def test_a_screen_with_few_edges_is_blank_only_where_a_closer_look_finds_no_more_than_what_turns() -> None:
    large, small = (1280, 720), (160, 210)
    for size, spread, passed in ((large, 0, False), (large, 7, False), (large, 8, True), (small, 8, False)):
        context = GateContext(looks={"a": BUSY, "b": 0}, details={"b": Detail(size, 0, spread)}.get)
        assert TransientGate(TransientOptions()).check(trajectory(), steps("a", "b"), context).passed is passed


def test_a_screen_that_went_on_changing_is_turned_away_unless_it_only_blinked() -> None:
    rows = [steps("a")[0].model_copy(update={"next_screenshot": "half"}), steps("a", "b")[1]]
    assert transient(rows, half=BUSY, b=BUSY ^ 0xFF).passed
    for looks in ({"half": BUSY, "b": BUSY ^ 0x1FF}, {}):
        found = transient(rows, **looks)
        assert (found.passed, found.error_step) == (False, 1) and "went on changing" in found.reason
    gone = [rows[0].model_copy(update={"next_screenshot": None}), rows[1]]
    assert transient(gone).passed
