"""Where trajectories part, the reply of the one that succeeded is preferred."""

from dataclasses import replace
from typing import Any

from curation.pairs import PartingStep, pairs_of


def step(name: str, number: int, screen: str, x: float, success: bool, **changes: Any) -> PartingStep:
    fields: dict[str, Any] = {
        "task_id": "t/a",
        "seed": 5,
        "trajectory_id": name,
        "success": success,
        "accepted": success,
        "verified": True,
        "step": number,
        "screenshot": screen,
        "raw_text": f"raw {x}",
        "actions": [f'{{"type":"click","x":{x},"y":0.5}}'],
        "thought": "Click it.",
    }
    return PartingStep(**fields | changes)


def click(x: int) -> str:
    return f"Thought: Click it.\nAction: click(start_box='({x},500)')"


def test_the_step_where_two_trajectories_part_makes_a_pair() -> None:
    rows = [
        step("a", 0, "s0", 0.1, True), step("a", 1, "s1", 0.2, True),
        step("b", 0, "s0", 0.1, False), step("b", 1, "s1", 0.9, False), step("b", 2, "s2", 0.3, False),
    ]  # fmt: skip
    (pair,) = pairs_of(rows, 3)
    assert (pair.trajectory_id, pair.step, pair.rejected_trajectory_id) == ("a", 1, "b")
    assert (pair.chosen, pair.rejected) == (click(200), click(900))
    assert (pair.kind, pair.verified, pair.iteration, pair.task_id, pair.seed) == ("parting", True, 3, "t/a", 5)


def test_trajectories_of_other_screens_tasks_or_seeds_have_no_context_in_common() -> None:
    won = step("a", 0, "s0", 0.1, True)
    for other in ({"screenshot": "else"}, {"seed": 6}, {"task_id": "t/b"}):
        assert pairs_of([won, replace(step("b", 0, "s0", 0.9, False), **other)], 0) == []


def test_after_trajectories_have_parted_nothing_is_compared() -> None:
    rows = [
        step("a", 0, "s0", 0.1, True), step("a", 1, "same", 0.2, True),
        step("b", 0, "s0", 0.9, False), step("b", 1, "same", 0.8, False),
    ]  # fmt: skip
    assert [pair.step for pair in pairs_of(rows, 0)] == [0]


def test_an_action_that_led_to_both_is_on_neither_side() -> None:
    rows = [
        step("a", 0, "s0", 0.1, True), step("b", 0, "s0", 0.1, False), step("c", 0, "s0", 0.9, False),
    ]  # fmt: skip
    assert pairs_of(rows, 0) == []


def test_a_success_that_a_gate_turned_away_is_on_neither_side_and_vouches_for_its_actions() -> None:
    turned_away = step("b", 0, "s0", 0.2, True, accepted=False)
    assert pairs_of([step("a", 0, "s0", 0.1, True), turned_away], 0) == []
    assert pairs_of([turned_away, step("c", 0, "s0", 0.9, False)], 0) == []
    assert pairs_of([step("a", 0, "s0", 0.1, True), turned_away, step("c", 0, "s0", 0.2, False)], 0) == []


def test_a_pair_is_verified_only_if_no_judge_stood_in_for_the_verifier() -> None:
    rows = [step("a", 0, "s0", 0.1, True, verified=False), step("b", 0, "s0", 0.9, False, verified=False)]
    assert not pairs_of(rows, 0)[0].verified


def test_each_reply_is_used_once() -> None:
    rows = [step(f"w{at}", 0, "s0", 0.1 * at, True) for at in range(1, 3)]
    rows += [step(f"x{at}", 0, "s0", 0.1 * at, False) for at in range(4, 8)]
    pairs = pairs_of(rows, 0)
    assert [(pair.chosen, pair.rejected) for pair in pairs] == [(click(100), click(400)), (click(200), click(500))]
    assert len({pair.pair_id for pair in pairs}) == 2


def test_a_reply_without_an_action_is_rejected_as_it_was_said() -> None:
    rows = [step("a", 0, "s0", 0.1, True), step("b", 0, "s0", 0.2, False, actions=[], raw_text="gibberish")]
    assert pairs_of(rows, 0)[0].rejected == "gibberish"
