"""Status, funnel and tasks, against a lake small enough to count by hand."""

from dataclasses import asdict
from datetime import timedelta

import pytest

from storage.catalog import FOLDER, ask, sql
from storage.lake import Lake
from tasks.shared.status import iterations


@pytest.fixture
def two_iterations(lake: Lake, row) -> Lake:
    """Iteration 1 made p1 (replaced since), iteration 2 made p2 (rejected)."""
    policies = [row("policies", status="retired"), row("policies", policy_version="p2", iteration=2, status="rejected")]
    lake.append("policies", policies)
    evaluated = [
        ("p1", "a", 2_000_000, True), ("p1", "a", 2_000_001, False), ("p1", "b", 2_000_000, True),
        ("p1", "b", 2_000_001, None), ("p1", "a", 1_000_000, False),
        ("p2", "a", 1_000_000, True), ("p2", "b", 1_000_000, False), ("p2", "b", 1_000_001, False),
        ("explorer", "a", 2_000_000, True), ("explorer", "b", 2_000_000, False),
    ]  # fmt: skip
    lake.append(
        "evaluations",
        [
            row("evaluations", policy_version=policy, task_id=task, seed=seed, success=success)
            for policy, task, seed, success in evaluated
        ],
    )
    start = row("stages")["started_at"]
    took = [
        (1, "collect", 0, 5.0, '{"orchestration_s": 0.5}'),
        (1, "train", 9, 7.0, '{"orchestration_s": 1.25, "loss": 2.0}'),
        (2, "collect", 20, 4.0, "{}"),
    ]
    stages = [
        row(
            "stages",
            iteration=number,
            stage=stage,
            started_at=start + timedelta(seconds=later),
            wall_s=wall,
            result=said,
        )
        for number, stage, later, wall, said in took
    ]
    lake.append("stages", stages)
    return lake


def test_status_quotes_test_seeds_and_falls_back_to_validation(two_iterations: Lake) -> None:
    first, second = iterations(two_iterations)
    assert (first.policy, first.success, first.n) == ("p1", 0.75, 3)
    assert (second.policy, second.success, second.n) == ("p2", 0.5, 3)
    assert first.explorer == second.explorer == 0.5


def test_status_tells_promotion_wall_time_and_stages(two_iterations: Lake) -> None:
    first, second = iterations(two_iterations)
    assert first.promoted and not second.promoted
    assert (first.wall_s, first.stages_s) == (12.0, {"collect": 5.0, "train": 7.0})
    assert second.stages_s == {"collect": 4.0}
    assert (first.orchestration_s, second.orchestration_s) == (1.75, None)


def test_status_has_an_interval_around_the_mean(two_iterations: Lake) -> None:
    for entry in iterations(two_iterations):
        low, high = entry.ci
        assert 0.0 <= low < entry.success < high <= 1.0


def test_a_lap_without_a_policy_yet_is_shown_with_what_there_is(lake: Lake, row) -> None:
    lake.append("trajectories", [row("trajectories", iteration=4)])
    (entry,) = iterations(lake)
    assert asdict(entry) == {
        "iteration": 4, "policy": None, "success": None, "ci": None, "n": 0, "explorer": None,
        "explorer_version": None, "trajectories": 1,
        "verified": None, "verified_fixed_mix": None, "held_out": None, "synthesized": None,
        "promoted": False, "wall_s": 0.0, "orchestration_s": None, "stages_s": {},
    }  # fmt: skip


def test_an_empty_lake_has_no_iterations(lake: Lake) -> None:
    assert iterations(lake) == []


def test_the_funnel_counts_each_sieve_and_names_the_commonest_reasons(lake: Lake, row) -> None:
    trajectories = {
        "t0": (True, "sft"),
        "t1": (True, "sft"),
        "t2": (False, "ct"),
        "t3": (None, "none"),
        "t4": (False, "none"),
    }
    ends = {"t3": "sandbox"}
    lake.append(
        "trajectories",
        [
            row("trajectories", trajectory_id=t, success=s, failure_boundary=ends.get(t))
            for t, (s, _) in trajectories.items()
        ],
    )
    lake.append("steps", [row("steps", trajectory_id=t, step=step) for t in trajectories for step in range(2)])
    route = [
        row("verdicts", trajectory_id=t, route=route, passed=route == "sft", reason=f"rules: to {route}")
        for t, (_, route) in trajectories.items()
    ]
    rules = [row("verdicts", trajectory_id="t4", gate="rules", passed=False, reason="to none", route="ct")]
    lake.append("verdicts", route + rules)
    (counts,) = ask(lake, "funnel").to_pylist()
    rejections = counts.pop("rejections")
    assert counts == {
        "iteration": 1, "collected": 5, "valid": 4, "verified": 2, "sft": 2, "ct": 1, "rl": 0, "quarantine": 0,
        "none": 2, "steps": 4,
    }  # fmt: skip
    assert rejections == [{"gate": "rules", "reason": "to none", "n": 3, "most": 2}]


def test_a_reason_that_names_no_gate_is_kept_whole(lake: Lake, row) -> None:
    lake.append("trajectories", [row("trajectories", trajectory_id="t", success=False)])
    lake.append("verdicts", [row("verdicts", trajectory_id="t", route="ct", passed=False, reason="went astray")])
    (counts,) = ask(lake, "funnel").to_pylist()
    (drop,) = ask(lake, "funnel_drops").to_pylist()
    assert counts["rejections"][0]["reason"] == drop["why"] == "went astray"


REPLIES = ("Click the box.", "I can't.", 'He said "no" 3 times', "a\nb", 'it\'s "x"', "", "\\", "0123456789abcdef")
PERFORMED = "holds no action that could be performed"


@pytest.mark.parametrize(
    ("reasons", "kind"),
    [
        ([f"actions: step {at} {PERFORMED}: no action in {text!r}" for at, text in enumerate(REPLIES)],
         f"step N {PERFORMED}: no action in '…'"),
        ([f"actions: step 2 {PERFORMED}: argument {text!r} twice in {text!r}" for text in REPLIES],
         f"step N {PERFORMED}: argument '…' twice in '…'"),
        ([f"actions: step 2 {PERFORMED}: isn't read: {text!r}"[:80 + at] for at, text in enumerate(REPLIES[:3])],
         f"step N {PERFORMED}: isn't read: '…'"),
        ([f"actions: {at} of 128 steps are in the lake" for at in (3, 12)], "N of N steps are in the lake"),
        ([f"duplicates: the same as {name * 8}, which is accepted" for name in ("3fa", "90b", "123")],
         "the same as …, which is accepted"),
        (["outcome: ended with raw reward 0.25", "outcome: ended with raw reward 0"], "ended with raw reward N"),
    ],
)  # fmt: skip
def test_the_funnel_counts_reasons_by_kind_and_shows_a_whole_one(
    reasons: list[str], kind: str, lake: Lake, row
) -> None:
    for number, reason in enumerate([*reasons, f"{reasons[0].partition(': ')[0]}: points outside the screen"]):
        lake.append("trajectories", [row("trajectories", trajectory_id=f"t{number}", success=False)])
        said = row("verdicts", trajectory_id=f"t{number}", route="ct", passed=False, reason=reason)
        lake.append("verdicts", [said])
    first, other = ask(lake, "funnel_drops").to_pylist()
    assert (first["why"], first["n"], other["why"]) == (kind, len(reasons), "points outside the screen")
    assert (first["reason"], first["examples"][0]) == (reasons[0].partition(": ")[2], "t0")


def test_tasks_show_evaluation_and_trajectories_side_by_side(two_iterations: Lake, row) -> None:
    trajectories = [
        row("trajectories", trajectory_id="x", task_id="a", success=False),
        row("trajectories", trajectory_id="y", task_id="a", policy="explorer"),
        row("trajectories", trajectory_id="z", task_id="c", success=None),
    ]
    two_iterations.append("trajectories", trajectories)
    rows = {(each["iteration"], each["task_id"]): each for each in ask(two_iterations, "tasks").to_pylist()}
    assert set(rows) == {(1, "a"), (1, "b"), (2, "a"), (2, "b")}
    first = rows[1, "a"]
    assert (first["policy_version"], first["success"], first["n"]) == ("p1", 0.5, 2)
    assert (first["collected_success"], first["explorer_success"]) == (0.0, 1.0)
    assert (rows[2, "b"]["success"], rows[2, "b"]["collected_n"]) == (0.0, 0)


def test_a_query_can_be_asked_of_pinned_versions(lake: Lake, row) -> None:
    lake.append("trajectories", [row("trajectories")])
    pinned = lake.versions()
    lake.append("trajectories", [row("trajectories", trajectory_id="t1")])
    assert ask(lake, "funnel", pinned)["collected"].to_pylist() == [1]


def test_every_query_says_what_it_is_for() -> None:
    for file in FOLDER.glob("*.sql"):
        assert sql(file.stem).startswith("-- ")
