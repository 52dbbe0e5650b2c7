"""The curriculum's numbers, against a lake small enough to count by hand."""

import math
from typing import Any

import pytest

from schemas.config.sections import CurriculumConfig
from storage.catalog import ask
from storage.lake import Lake
from tests.fixtures.sentences import Sentences

POLICY = CurriculumConfig().model_dump(exclude={"hopeless_share"})


def _choices(lake: Lake, tasks: list[str], iteration: int = 3, **changes: Any) -> dict[str, dict[str, Any]]:
    answer = ask(lake, "curriculum", iteration=iteration, tasks=tasks, **{**POLICY, **changes}).to_pylist()
    return {each["task_id"]: each for each in answer}


@pytest.fixture
def rolled_out(lake: Lake, row):
    """Writes trajectories of one task by one kind of policy."""

    def write(task: str, successes: int, failures: int, policy: str = "policy", iteration: int = 2) -> None:
        outcomes = [True] * successes + [False] * failures
        lake.append(
            "trajectories",
            [
                row("trajectories", trajectory_id=f"{task}-{policy}-{iteration}-{place}", task_id=task,
                    policy=policy, iteration=iteration, success=success)
                for place, success in enumerate(outcomes)
            ],
        )  # fmt: skip

    return write


def test_each_pool_gets_its_weight_and_the_floor_is_shared_evenly(lake: Lake, rolled_out) -> None:
    rolled_out("even", 3, 3)
    rolled_out("never", 0, 60)
    rolled_out("shown", 0, 60)
    rolled_out("shown", 11, 12, policy="explorer")
    rolled_out("always", 40, 0)
    choices = _choices(lake, ["even", "new", "never", "shown", "always"])
    raw = {"even": 1.0, "new": 0.6, "never": 0.6, "shown": 0.3 * 24 / 11.5, "always": 0.1}
    for task, weight in raw.items():
        assert choices[task]["weight"] == pytest.approx(0.25 / 5 + 0.75 * weight / sum(raw.values()))
    pools = {task: choice["pool"] for task, choice in choices.items()}
    assert pools == {
        "even": "learnable",
        "new": "unseen",
        "never": "hopeless",
        "shown": "hopeless",
        "always": "saturated",
    }
    assert sum(choice["weight"] for choice in choices.values()) == pytest.approx(1.0)


def test_a_saturated_task_weighs_what_the_config_says(lake: Lake, rolled_out) -> None:
    rolled_out("always", 40, 0)
    rolled_out("even", 20, 20)
    choices = _choices(lake, ["always", "even"], floor=0.0, saturated=0.02)
    assert choices["always"]["weight"] == pytest.approx(0.02 / 1.02)


def test_the_lead_is_the_policys_success_over_the_explorers(lake: Lake, rolled_out) -> None:
    rolled_out("half", 6, 6)
    rolled_out("never", 0, 12)
    found = {task: choice["lead"] for task, choice in _choices(lake, ["half", "never", "unseen"]).items()}
    assert found == {"half": 1.0, "never": 0.0, "unseen": 0.0}  # of an explorer without trajectories, half succeed


def test_older_trajectories_count_less(lake: Lake, rolled_out) -> None:
    rolled_out("a", 4, 0, iteration=1)
    rolled_out("a", 0, 3, iteration=2)
    choice = _choices(lake, ["a"])["a"]
    assert (choice["successes"], choice["failures"]) == (2.0, 3.0)
    assert choice["posterior"] == pytest.approx(2.5 / 6)


def test_what_counts_next_to_nothing_is_left_out_and_nothing_is_where_nothing_is_forgotten(lake, rolled_out) -> None:
    rolled_out("long ago", 3, 1, iteration=0)
    rolled_out("just before", 2, 1, iteration=59)

    def counted(forgetting: float) -> dict[str, tuple[float, float]]:
        choices = _choices(lake, ["long ago", "just before"], iteration=60, forgetting=forgetting)
        return {task: (choice["successes"], choice["failures"]) for task, choice in choices.items()}

    assert counted(0.5) == {"long ago": (0.0, 0.0), "just before": (2.0, 1.0)}, "0.5^59 is less than 10^-15"
    assert counted(0.6)["long ago"] == pytest.approx((3 * 0.6**59, 0.6**59))
    assert counted(1.0) == {"long ago": (3.0, 1.0), "just before": (2.0, 1.0)}
    assert counted(0.0) == {"long ago": (0.0, 0.0), "just before": (2.0, 1.0)}


def test_few_trajectories_get_the_benefit_of_the_doubt(lake: Lake, rolled_out) -> None:
    rolled_out("few", 0, 4)
    rolled_out("many", 4, 36)
    choices = _choices(lake, ["few", "many"], floor=0.0)
    few = 0.1 + math.sqrt(0.5 * 4.5 / (25 * 6))
    many = 4.5 / 41 + math.sqrt(4.5 * 36.5 / (41**2 * 42))
    ratio = math.sqrt(few * (1 - few)) / math.sqrt(many * (1 - many))
    assert choices["few"]["weight"] / choices["many"]["weight"] == pytest.approx(ratio)


def test_the_rarer_a_demonstration_the_more_trajectories_it_gets_within_bounds(lake: Lake, rolled_out, row) -> None:
    rolled_out("rare", 0, 99, policy="explorer")
    rolled_out("common", 99, 0, policy="explorer")
    lake.append("evaluations", [
        row("evaluations", task_id="measured", policy_version="explorer-1", seed=1_000_000 + place, success=place < 2,
            iteration=-1)
        for place in range(24)
    ])  # fmt: skip
    for most in (3.0, 0.8):
        choices = _choices(lake, ["rare", "common", "measured"], floor=0.0, most_shown=most)
        raw = {"rare": most, "common": 0.3 * 100 / 99.5, "measured": min(most, 0.3 * 25 / 2.5)}
        for task, weight in raw.items():
            assert choices[task]["weight"] == pytest.approx(weight / sum(raw.values()))


def test_environment_failures_and_the_future_count_nothing(lake: Lake, rolled_out, row) -> None:
    lost = row(
        "trajectories", task_id="a", success=None, reward=None, failure_boundary="sandbox", termination="failure"
    )
    lake.append("trajectories", [lost])
    rolled_out("a", 5, 5, iteration=3)
    assert _choices(lake, ["a"])["a"]["pool"] == "unseen"


def test_help_is_not_counted_as_the_policys_own_success(lake: Lake, rolled_out) -> None:
    rolled_out("a", 9, 0, policy="relay")
    rolled_out("a", 7, 0, policy="explorer")
    choice = _choices(lake, ["a"])["a"]
    assert choice["pool"] == "unseen"
    assert choice["reason"].endswith("others solved it 16 times")


def test_only_the_champions_validation_trajectories_of_the_suite_are_evidence(lake: Lake, row) -> None:
    lake.append("policies", [row("policies"), row("policies", policy_version="p0", status="rejected")])
    measured = [
        row("evaluations", task_id="a", iteration=2),
        row("evaluations", task_id="a", iteration=2, seed=1_000_001, success=False),
        row("evaluations", task_id="a", iteration=2, seed=1_000_002, success=None),
        row("evaluations", task_id="a", iteration=2, seed=2_000_000),
        row("evaluations", task_id="a", iteration=2, suite="held_out"),
        row("evaluations", task_id="a", iteration=2, policy_version="p0"),
        row("evaluations", task_id="a", iteration=2, policy_version="explorer"),
    ]
    lake.append("evaluations", measured)
    choice = _choices(lake, ["a"])["a"]
    assert (choice["successes"], choice["failures"]) == (1.0, 1.0)


def test_uniform_ignores_what_is_known(lake: Lake, rolled_out) -> None:
    rolled_out("a", 40, 0)
    choices = _choices(lake, ["a", "b", "c", "d"], method="uniform")
    assert {(choice["pool"], choice["weight"]) for choice in choices.values()} == {("uniform", 0.25)}


def test_reasons_hold_the_numbers(lake: Lake, rolled_out, sentence: Sentences) -> None:
    rolled_out("a", 3, 3)
    reason = _choices(lake, ["a", "b"])["a"]["reason"]
    sentence(reason)


def test_a_task_named_twice_is_planned_once(lake: Lake) -> None:
    assert list(_choices(lake, ["a", "a"])) == ["a"]
