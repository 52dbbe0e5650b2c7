"""Which tasks are rolled out in groups, against a lake small enough to count by hand."""

from typing import Any

import pytest

from schemas.config import config_of
from storage.catalog import ask
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe
from tasks.train.groups import group_steps
from tests.fixtures.sentences import Sentences


def groups(lake: Lake, tasks: list[str], **changes: Any) -> dict[str, dict[str, Any]]:
    asked = {"iteration": 3, "tasks": tasks, "forgetting": 1.0, "highest": 0.75, "size": 4, "rise": 1.0, "rising": 0.5}
    asked |= changes
    return {row["task_id"]: row for row in ask(lake, "groups", **asked).to_pylist()}


@pytest.fixture
def rolled_out(lake: Lake, row):
    lake.append("policies", [row("policies")])

    def write(
        task: str, successes: int, failures: int, none: int = 0, iteration: int = 2, policy: str = "policy"
    ) -> None:
        outcomes = [True] * successes + [False] * failures + [None] * none
        names = [f"{task}-{policy}-{iteration}-{number}" for number in range(len(outcomes))]
        lake.append(
            "trajectories",
            [
                row(
                    "trajectories",
                    trajectory_id=name,
                    task_id=task,
                    success=success,
                    iteration=iteration,
                    policy=policy,
                )
                for name, success in zip(names, outcomes, strict=True)
            ],
        )

    return write


def test_only_tasks_that_sometimes_succeed_are_rolled_out_in_groups(lake: Lake, rolled_out) -> None:
    for task, counts in {"never": (0, 9), "some": (1, 8), "edge": (3, 1), "often": (4, 1), "always": (5, 0)}.items():
        rolled_out(task, *counts)
    found = groups(lake, ["never", "some", "edge", "often", "always", "unseen"])
    assert {task: row["pool"] for task, row in found.items()} == {
        "never": "hopeless",
        "some": "learnable",
        "edge": "learnable",
        "often": "saturated",
        "always": "saturated",
        "unseen": "unseen",
    }
    assert {task for task, row in found.items() if row["weight"] > 0} == {"some", "edge"}


def test_a_task_weighs_by_the_chance_that_a_group_teaches(lake: Lake, rolled_out, sentence: Sentences) -> None:
    rolled_out("half", 2, 2)
    found = groups(lake, ["half"])["half"]
    assert found["weight"] == pytest.approx(1 - 2 * 0.5**4)
    sentence(found["reason"])


def test_environment_failures_and_other_policies_are_no_evidence(lake: Lake, rolled_out) -> None:
    rolled_out("a", 1, 1, none=6)
    rolled_out("a", 8, 0, policy="explorer")
    rolled_out("a", 8, 0, policy="relay")
    assert (groups(lake, ["a"])["a"]["successes"], groups(lake, ["a"])["a"]["failures"]) == (1.0, 1.0)


def test_older_trajectories_are_forgotten_and_later_ones_not_seen(lake: Lake, rolled_out) -> None:
    rolled_out("a", 0, 4, iteration=1)
    rolled_out("a", 1, 1, iteration=2)
    rolled_out("a", 9, 0, iteration=3)
    found = groups(lake, ["a"], forgetting=0.5)["a"]
    assert (found["successes"], found["failures"]) == (1.0, 3.0)


def test_a_task_whose_success_rises_fast_counts_half(lake: Lake, rolled_out, sentence: Sentences) -> None:
    for task, before in (("fast", 0), ("slow", 1)):
        rolled_out(task, before, 4 - before, iteration=1)
        rolled_out(task, 2, 2, iteration=2)
    found = groups(lake, ["fast", "slow"], rise=0.3)
    plain = groups(lake, ["fast", "slow"])
    assert found["fast"]["weight"] == pytest.approx(plain["fast"]["weight"] / 2)
    assert found["slow"]["weight"] == pytest.approx(plain["slow"]["weight"])
    sentence(found["fast"]["reason"])


ABOUT = {"environment": "games", "template": "t", "instruction": "i", "tags": [], "split": "train", "max_steps": 3}


def test_a_trajectory_of_a_graded_task_counts_as_much_of_a_success_as_its_reward_says(lake: Lake, row) -> None:
    lake.append("policies", [row("policies")])
    for task, graded in (("graded", True), ("plain", False)):
        lake.append("tasks", [ABOUT | {"task_id": task, "verifier": "games", "threshold": 0.9, "graded": graded}])
        for attempt, reward in enumerate((0.5, 0.25, 0.25, 0.0)):
            made = {"task_id": task, "iteration": 2, "success": False, "reward": reward}
            lake.append("trajectories", [row("trajectories", trajectory_id=f"{task}-{attempt}", **made)])
    found = groups(lake, ["graded", "plain"])
    assert (found["graded"]["successes"], found["graded"]["failures"], found["graded"]["pool"]) == (1, 3, "learnable")
    assert (found["plain"]["successes"], found["plain"]["pool"]) == (0, "hopeless")


def test_groups_of_a_graded_task_are_compared_by_reward_and_those_of_another_by_success(lake: Lake, row) -> None:
    for task, graded in (("graded", True), ("plain", False)):
        lake.append("tasks", [ABOUT | {"task_id": task, "verifier": "games", "threshold": 0.5, "graded": graded}])
        for attempt, reward in enumerate((0.75, 0.25)):
            made = {"task_id": task, "group_id": task, "attempt": attempt, "success": reward > 0.5, "reward": reward}
            lake.append("trajectories", [row("trajectories", trajectory_id=f"{task}-{attempt}", **made)])
    asked = {"iteration": 1, "groups": None}
    rows = ask(lake, "training_groups", **asked).to_pylist()
    assert [(one["group_id"], one["reward"]) for one in rows] == [
        ("graded", 0.75), ("graded", 0.25), ("plain", 1.0), ("plain", 0.0),
    ]  # fmt: skip
    for scored, wanted in ((True, [0.75, 0.25, 1.0, 0.0]), (False, [1.0, 0.0, 1.0, 0.0])):
        found = ask(lake, "group_worth", iteration=1, scored=scored).to_pylist()
        assert [one["worth"] for one in found] == wanted
        assert [one["success"] for one in found] == [True, False, True, False]


def test_what_a_judge_on_probation_scored_is_compared_in_no_group(lake: Lake, row) -> None:
    about = {"environment": "fake", "template": "t", "instruction": "i", "tags": [], "split": "train", "max_steps": 3}
    for task, verifier in (("fake/note", "judge"), ("fake/click", "state")):
        lake.append("tasks", [about | {"task_id": task, "verifier": verifier}])
    for task, group in (("fake/note", "judged"), ("fake/click", "verified")):
        for attempt, reward in enumerate((0.45, 0.05)):
            name = f"{group}-{attempt}"
            made = {"task_id": task, "group_id": group, "attempt": attempt, "success": False, "reward": reward}
            lake.append("trajectories", [row("trajectories", trajectory_id=name, **made)])
            lake.append("verdicts", [row("verdicts", trajectory_id=name, route="ct")])
            if group == "judged":
                word = {"gate": "judge", "gate_version": "judge-1", "passed": False, "score": reward}
                lake.append("verdicts", [row("verdicts", trajectory_id=name, route="ct", **word)])
    recipe = PolicyRecipe("policy-0001", "policy-0000", 1, lake.versions())
    steps, because = group_steps(config_of({"suite": {"tasks": ["note"]}, "judge": {"evidence_min": 20}}), lake, recipe)
    assert {one.group_id for one in steps} == {"verified"}
    assert because.startswith("nothing to learn from: 1 groups are of a judge on probation (compared 0 times")
    steps, because = group_steps(config_of({"suite": {"tasks": ["note"]}, "judge": {"evidence_min": 0}}), lake, recipe)
    assert {one.group_id for one in steps} == {"verified", "judged"} and because == ""
