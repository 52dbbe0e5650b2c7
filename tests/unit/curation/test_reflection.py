"""Where a failed trajectory went wrong, and what is learned from what succeeded there."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from curation.reflection import (
    CorrectedTrajectory,
    FailureSearch,
    annotation_of,
    finding_of,
    hinted,
    led_nowhere,
    pair_of,
    recoverable,
    shares,
    states_of,
)
from schemas.action import Click, to_json
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory
from tests.unit.storage.conftest import DEFAULTS

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def click(x: float) -> str:
    return to_json(Click(x=x, y=0.5))


def step(number: int, screen: str, x: float, after: str = "z", **changes: Any) -> Step:
    fields = {"step": number, "screenshot": screen, "next_screenshot": after, "actions": [click(x)]} | changes
    return Step(**DEFAULTS["steps"] | fields)


def trajectory(**changes: Any) -> Trajectory:
    return Trajectory(**DEFAULTS["trajectories"] | {"success": False, "reward": -1.0} | changes)


def tried(search: FailureSearch, succeeds: set[int]) -> list[int]:
    """The states that are tried where only these succeed, at the first attempt."""
    order: list[int] = []
    while (state := search.next()) is not None:
        order.append(state)
        search.note(state, state in succeeds)
    return order


def test_the_search_begins_where_the_trajectory_ended_and_stops_at_the_first_success_there() -> None:
    search = FailureSearch(range(6), 2)
    assert tried(search, {5}) == [5] and search.best == 5


def test_it_goes_back_in_strides_that_double_and_then_halves_what_is_left() -> None:
    search = FailureSearch(range(8), 1)
    assert tried(search, set(range(5))) == [7, 6, 4, 5] and search.best == 4


def test_a_state_is_tried_so_often_before_an_earlier_one() -> None:
    search = FailureSearch(range(2), 3)
    assert tried(search, set()) == [1, 1, 1, 0, 0, 0] and search.best is None


def test_a_known_error_step_is_where_it_begins() -> None:
    assert tried(FailureSearch([0, 2, 5], 1, hint=4), {2}) == [2]
    assert tried(FailureSearch([3, 4], 1, hint=1), {3}) == [3]


def test_a_trajectory_without_steps_has_nothing_to_search() -> None:
    assert FailureSearch([], 1).next() is None


def test_a_state_is_the_last_showing_of_its_screen_and_nothing_follows_a_reply_without_an_action() -> None:
    steps = [step(0, "a", 0.1), step(1, "a", 0.2), step(2, "b", 0.3), step(3, "c", 0.4, actions=[]), step(4, "d", 0.5)]
    assert states_of(trajectory(), steps, 9) == [1, 2, 3]


def test_a_showing_that_leaves_a_correction_too_few_steps_counts_only_where_the_trajectory_was_ended_there() -> None:
    steps = [step(number, "a", 0.1 + number / 10, "a") for number in range(5)]
    assert states_of(trajectory(), steps, 2) == [2, 4]
    assert states_of(trajectory(termination="max_steps"), steps, 2) == [2]
    assert states_of(trajectory(termination="max_steps"), [*steps, step(5, "b", 0.9)], 2) == [2, 5]


def test_after_what_changed_nothing_the_fatal_action_is_the_error_and_the_rejected_one() -> None:
    steps = [step(0, "a", 0.1, "a"), step(1, "a", 0.2, "a"), step(2, "a", 0.3, "z")]
    states = states_of(trajectory(), steps, 7)
    for known in (None, 0, 2):
        search = FailureSearch(states, 3, hinted(states, steps, known))
        assert tried(search, {2}) == [2] and search.best == 2
    verified = trajectory(trajectory_id="t1", success=True, continues="t0", replayed=2)
    found = CorrectedTrajectory(trajectory(), steps, verified, [*steps[:2], step(2, "a", 0.7)])
    assert finding_of(found, NOW).step == 2
    pair = pair_of(found)
    assert pair is not None and (pair.step, pair.rejected[-20:]) == (2, "start_box='(300,500)')"[-20:])


def test_what_ended_it_failed_or_changed_nothing_led_nowhere_and_what_led_on_did_not() -> None:
    steps = [step(0, "a", 0.1, "a"), step(1, "a", 0.2, "b"), step(2, "b", 0.3, "c")]
    found = led_nowhere([(trajectory(), steps)], step(0, "b", 0.9))
    assert found == {"a": (Click(x=0.1, y=0.5),), "b": (Click(x=0.9, y=0.5), Click(x=0.3, y=0.5))}
    ran_out = led_nowhere([(trajectory(termination="max_steps"), steps)], step(0, "b", 0.9))
    assert ran_out["b"] == (Click(x=0.9, y=0.5),)
    cut_off = led_nowhere([(trajectory(termination="truncated"), steps)], step(0, "b", 0.9))
    assert cut_off == ran_out


def test_only_a_trajectory_that_went_on_after_its_error_can_recover() -> None:
    steps = [step(0, "a", 0.1, "b"), step(1, "b", 0.2, "c")]
    assert recoverable(trajectory(), steps, 0) and not recoverable(trajectory(), steps, 1)
    assert recoverable(trajectory(termination="max_steps"), steps, 1)
    assert not recoverable(trajectory(termination="truncated"), steps, 1)


def correction(reflects: bool = False, x: float = 0.7) -> CorrectedTrajectory:
    recorded = [step(0, "a", 0.1), step(1, "b", 0.2), step(2, "c", 0.3)]
    performed = [step(0, "a", 0.1), step(1, "b", x, policy_version="explorer-3")]
    verified = trajectory(trajectory_id="t1", success=True, continues="t0", replayed=1)
    return CorrectedTrajectory(trajectory(), recorded, verified, performed, reflects)


def test_a_correction_is_an_annotation_a_finding_and_a_pair_whose_sides_both_have_a_thought() -> None:
    made = annotation_of(correction(), NOW)
    assert (made.trajectory_id, made.step, made.kind, made.author) == ("t0", 1, "correction", "explorer-3")
    assert (made.thought, made.action) == ("Click it.", click(0.7))
    found = finding_of(correction(), NOW)
    assert (found.step, found.author, found.last_step_correct) == (1, "replay", False)
    pair = pair_of(correction())
    assert pair is not None and (pair.kind, pair.verified) == ("correction", True)
    assert (pair.trajectory_id, pair.rejected_trajectory_id, pair.step) == ("t1", "t0", 1)
    assert pair.chosen == "Thought: Click it.\nAction: click(start_box='(700,500)')"
    assert pair.rejected == "Thought: Click it.\nAction: click(start_box='(200,500)')"


def test_a_recovery_is_a_reflection_and_what_was_done_in_its_place_anyway_is_no_pair() -> None:
    assert annotation_of(correction(reflects=True), NOW).kind == "reflection"
    pair = pair_of(correction(reflects=True))
    assert pair is not None and pair.kind == "post_reflection"
    assert pair_of(correction(x=0.2)) is None


def test_what_changed_nothing_before_a_later_step_succeeded_is_preferred_to_nothing() -> None:
    still, then = step(1, "b", 0.7, "b"), step(2, "b", 0.8)
    assert pair_of(replace(correction(), performed=[step(0, "a", 0.1), still, then])) is None
    assert pair_of(replace(correction(), performed=[step(0, "a", 0.1), still])) is not None


def test_a_preference_is_for_no_style_of_thoughts() -> None:
    def thoughts(better: dict[str, Any], worse: dict[str, Any], reflects: bool = False) -> list[str]:
        recorded, performed = (
            [step(0, "a", 0.1), step(1, "b", 0.2, **worse)],
            [step(0, "a", 0.1), step(1, "b", 0.7, **better)],
        )
        pair = pair_of(replace(correction(reflects), recorded=recorded, performed=performed))
        assert pair is not None
        return [side.partition("Action:")[0].removeprefix("Thought: ").strip() for side in (pair.chosen, pair.rejected)]

    policy, explorer = {"actor": "policy", "thought": "It is blue."}, {"actor": "explorer", "thought": ""}
    assert thoughts(policy, policy | {"thought": "It is red."}) == ["It is blue.", "It is red."]
    assert thoughts(explorer, policy) == thoughts(policy, explorer) == ["Click it.", "Click it."]
    assert thoughts(explorer, policy, reflects=True) == ["Not that. Click it.", "Click it."]
    unread = policy | {"actions": [], "raw_text": "Thought: It is blue.\nAction: jump()"}
    assert thoughts(explorer, unread) == ["It is blue.", "It is blue."]


def test_names_are_taken_in_turn() -> None:
    assert shares({"a": ["1", "2", "3"], "b": ["4"]}, 3) == ["1", "4", "2"]
