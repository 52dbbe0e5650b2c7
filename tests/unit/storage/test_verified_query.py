"""P(V=1 | iteration), against a lake small enough to count by hand."""

import pytest

from storage.lake import Lake
from tasks.shared.status import iterations, verified


@pytest.fixture
def rolled_out(lake: Lake, row):
    def write(name: str, route: str, policy: str = "policy", iteration: int = 1, task: str = "fake/one") -> None:
        one = row("trajectories", trajectory_id=name, task_id=task, policy=policy, iteration=iteration)
        lake.append("trajectories", [one])
        lake.append("verdicts", [row("verdicts", trajectory_id=name, route=route, iteration=iteration)])

    return write


def test_environment_failures_enter_no_rate_and_policies_are_kept_apart(lake: Lake, rolled_out) -> None:
    for name, route in (("a", "sft"), ("b", "ct"), ("c", "ct"), ("d", "none")):
        rolled_out(name, route)
    rolled_out("e", "sft", policy="explorer")
    rates = {row.kind: (row.at.mean, row.at.n) for row in verified(lake)}
    assert rates == {"policy": (pytest.approx(1 / 3), 3), "explorer": (1.0, 1)}


def test_an_iteration_tells_its_own_rate_and_nothing_where_the_policy_did_not_act(lake: Lake, rolled_out) -> None:
    rolled_out("a", "sft", policy="explorer", iteration=0)
    rolled_out("b", "sft", iteration=1)
    rolled_out("c", "ct", iteration=1)
    first, second = iterations(lake)
    assert first.verified is None
    assert second.verified.rate == 0.5 and second.verified.n == 2
    assert second.verified.ci[0] < 0.5 < second.verified.ci[1]


def test_trajectories_no_gate_has_seen_are_left_out(lake: Lake, row) -> None:
    lake.append("trajectories", [row("trajectories")])
    assert verified(lake) == []


def test_at_a_fixed_mix_a_curriculum_that_moves_to_weak_tasks_moves_no_rate(lake: Lake, rolled_out) -> None:
    for iteration, (easy, hard) in enumerate(((4, 2), (2, 8)), 1):
        for place in range(easy):
            rolled_out(f"easy-{iteration}-{place}", "sft", iteration=iteration, task="fake/easy")
        for place in range(hard):
            rolled_out(f"hard-{iteration}-{place}", "sft" if place % 2 else "ct", iteration=iteration, task="fake/hard")
    rolled_out("new", "sft", iteration=2, task="fake/new")
    first, second = iterations(lake)
    assert first.verified.rate == pytest.approx(5 / 6) and second.verified.rate == pytest.approx(7 / 11)
    for one, n in ((first, 6), (second, 10)):
        fixed = one.verified_fixed_mix
        assert fixed.rate == pytest.approx(0.75) and fixed.tasks == 2 and fixed.n == n
        assert fixed.ci[0] < 0.75 < fixed.ci[1]


def test_tasks_that_are_only_measured_have_a_success_of_their_own(lake: Lake, row) -> None:
    made = row("policies", policy_version="p", iteration=0, status="champion")
    lake.append("policies", [made])
    trajectories = [
        ("suite", "fake/a", True),
        ("suite", "fake/a", False),
        ("held_out", "fake/b", False),
        ("held_out", "fake/c", True),
    ]
    lake.append("evaluations", [
        row("evaluations", policy_version="p", suite=suite, task_id=task, seed=1_000_000 + place, success=success,
            iteration=0)
        for place, (suite, task, success) in enumerate(trajectories)
    ])  # fmt: skip
    (one,) = iterations(lake)
    assert one.success == 0.5 and one.n == 2
    assert one.held_out.success == 0.5 and one.held_out.n == 2
