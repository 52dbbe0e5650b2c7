"""Two policies on the same seeds: which pairs one of them won, and both step by step."""

from collections.abc import Callable

import pytest

from schemas.failure import UsageError
from schemas.tables.evaluation_trajectory import EvaluationTrajectory
from schemas.tables.promotion import Promotion
from storage.lake import Lake
from tasks.promote.pairs import (
    evaluated_on,
    evaluated_version,
    opponent_of,
    pairs_of,
    promotion_pairs,
    require_kept,
    side_by_side,
)
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import START, make_place

FIRST = 1_000_000
TASK = "fake/two-steps"
"""policy-0000 succeeds on four of eight seeds, and policy-0001 on six; even successes are not kept."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return make_place(tmp_path_factory.mktemp("pairs")).lake


def decision(pairs: int) -> Promotion:
    return Promotion(
        event="challenge:policy-0001", decision="promote", policy_version="policy-0001", against="policy-0000",
        champion="policy-0001", pairs=pairs, wins=0, losses=0, difference=None, low=None, high=None, llr=None,
        rule="{}", reason="better", created_at=START,
    )  # fmt: skip


def test_pairs_are_the_seeds_on_which_both_have_an_outcome_and_one_may_have_won(lake: Lake) -> None:
    pairs = pairs_of(lake, "policy-0001", "policy-0000", TASK)
    assert [one.seed for one in pairs] == list(range(FIRST, FIRST + 8))
    assert {one.seed - FIRST: one.kept for one in pairs if one.won} == {4: (False, True), 5: (True, True)}
    assert {one.won for one in pairs} == {None, "a"}
    assert {one.won for one in pairs_of(lake, "policy-0000", "policy-0001", TASK)} == {None, "b"}
    assert len(pairs_of(lake, "policy-0001", "policy-0000")) == 24


def test_a_decision_counts_the_first_seeds_of_suite_tasks(lake: Lake) -> None:
    assert len(promotion_pairs(lake, decision(16))) == 16
    early = promotion_pairs(lake, decision(4))
    assert {one.seed for one in early} == {FIRST, FIRST + 1} and "fake/enter-text" not in {one.task_id for one in early}


def test_both_are_read_step_by_step_and_the_first_difference_is_named(lake: Lake) -> None:
    pair = side_by_side(lake, "policy-0001", "policy-0000", "two-steps", FIRST + 5)
    assert (pair.a.outcome, pair.b.outcome, pair.task_id, pair.differs_at) == ("success", "failure", TASK, None)
    assert pair.a.row is not None and len(pair.a.steps) == len(pair.b.steps) == 1
    assert pair.b.row is not None
    step = pair.b.steps[0].model_copy(update={"trajectory_id": "b", "actions": ['{"type":"wait"}']})
    rows = [side.row.model_copy(update={"trajectory_id": name, "seed": FIRST + 9})
            for name, side in (("a", pair.a), ("b", pair.b)) if side.row]  # fmt: skip
    lake.append("evaluation_trajectories", rows)
    first = pair.a.steps[0].model_copy(update={"trajectory_id": "a"})
    lake.append("evaluation_steps", [first, step, step.model_copy(update={"step": 1})])
    both = (pair.a.evaluation, pair.b.evaluation)
    lake.append("evaluations", [one.model_copy(update={"seed": FIRST + 9}) for one in both])
    found = side_by_side(lake, "policy-0001", "policy-0000", TASK, FIRST + 9)
    assert found.differs_at == 0 and [b is None for _, b in found.steps] == [False, False]
    assert [a is None for a, _ in found.steps] == [False, True]


def test_a_side_that_was_not_kept_says_why_and_the_other_is_there(lake: Lake) -> None:
    pair = side_by_side(lake, "policy-0001", "policy-0000", TASK, FIRST + 4)
    assert pair.a.row is None and pair.a.steps == () and "evaluate.keep_successes" in pair.a.not_kept
    assert isinstance(pair.b.row, EvaluationTrajectory) and pair.b.not_kept == "" and pair.differs_at is None
    require_kept(pair)


def test_the_explorer_and_the_champion_have_names(lake: Lake) -> None:
    assert evaluated_version(lake, "explorer") == "explorer-1" and evaluated_version(lake, "champion") == "policy-0001"
    assert evaluated_on(lake, TASK, FIRST) == ["policy-0001", "policy-0000", "explorer-1", "policy-initial"]


def test_a_policy_is_compared_with_its_opponent_or_its_ancestor(lake: Lake) -> None:
    others = evaluated_on(lake, TASK, FIRST)
    assert opponent_of(lake, "policy-0001", others) == "policy-0000"
    assert opponent_of(lake, "explorer-1", others) == "policy-0001"
    assert opponent_of(lake, "policy-0001", ["policy-0001"]) == "policy-0001"
    lake.append("promotions", [decision(16).model_copy(update={"against": "policy-initial"})])
    assert opponent_of(lake, "policy-0001", others) == "policy-initial"


@pytest.mark.parametrize(
    ("find", "named"),
    [
        (lambda lake: side_by_side(lake, "policy-9", "policy-0000", TASK, FIRST), "no policy `policy-9`"),
        (lambda lake: side_by_side(lake, "policy-0001", "policy-0000", "nothing", FIRST), "`task`"),
        (lambda lake: side_by_side(lake, "policy-0001", "policy-0000", TASK, 5), "`seed`"),
        (lambda lake: require_kept(side_by_side(lake, "policy-0001", "policy-0000", TASK, FIRST)), "`seed`: neither"),
    ],
    ids=["policy", "task", "seed", "not kept"],
)
def test_what_was_not_evaluated_or_not_kept_is_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, find: Callable[[Lake], object], named: str, sentence: Sentences
) -> None:
    lake = make_place(tmp_path_factory.mktemp("refused")).lake
    with sentence.raises(UsageError, named):
        find(lake)
