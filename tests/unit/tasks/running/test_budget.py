"""What a lake has cost, and when its budget is used up."""

from pathlib import Path

import pytest

from models.serving.openai import charge
from schemas.config import config_of
from schemas.config.operations import BudgetConfig
from schemas.failure import Paused, UsageError
from schemas.tables.stage import PlainResult, StageResult
from tasks.running.budget import account, exhausted, require_budget, sentence, spent
from tasks.running.run import Run, open_run
from tasks.running.stage import result_of, stage
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import Place, make_place

STEPS = 3 * 24 + 4 * 24
"""Three iterations of 24 trajectories of one step, four policies on 3 tasks of 8 seeds each."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("budget"))


def test_steps_of_collection_and_of_evaluation_are_counted(place: Place) -> None:
    cost = spent(place.lake, BudgetConfig(hour_price=2.0))
    rows = place.lake.read("stages", ["wall_s"])["wall_s"].to_pylist()
    assert cost.steps == STEPS
    assert cost.hours == pytest.approx(sum(rows) / 3600)
    assert cost.money == pytest.approx(2 * cost.hours)


def test_without_a_budget_nothing_is_ever_used_up_nor_counted(place: Place) -> None:
    assert exhausted(place.lake, BudgetConfig(hour_price=2.0)) is None
    assert account(place.lake, BudgetConfig()) == []


def test_a_part_that_is_used_up_is_named_with_its_numbers_and_its_key(place: Place, sentence: Sentences) -> None:
    require_budget(place.lake, BudgetConfig(steps=STEPS + 1, hours=1000))
    with sentence.raises(Paused, "budget.steps", STEPS, hint="budget.steps") as refused:
        require_budget(place.lake, BudgetConfig(steps=STEPS, hours=1000))
    assert refused.value.exit_code == Paused.exit_code


def test_money_without_a_price_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing has a price"):
        BudgetConfig(money=10)


def test_a_plan_says_whether_it_fits(place: Place) -> None:
    fits, does_not = (
        sentence(account(place.lake, BudgetConfig(steps=allowed), 4)[0], 4) for allowed in (10_000, STEPS + 10)
    )
    assert "4 more iterations about" in fits and "end early" not in fits
    assert "end early" in does_not


def test_what_judges_proposers_and_teachers_are_charged_is_kept_by_their_stage_and_planned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @stage("filter")
    def asks(run: Run, iteration: int) -> StageResult:
        for who in ("judge", "reflect", "think"):
            charge(who, 1_000_000)
        charge("train", 500_000)
        return PlainResult(text="")

    @stage("promote")
    def asks_nobody(run: Run, iteration: int) -> StageResult:
        return PlainResult(text="")

    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path))
    lake = {"uri": str(tmp_path / "lake"), "min_free_mb": 1}
    config = config_of({"lake": lake, "environments": {"fake": {}}, "suite": {"tasks": ["click-one"]}})
    budget = BudgetConfig(tokens=5_000_000, money=100, million_tokens_price=3.0)
    with open_run(config) as run:
        for one in (asks, asks_nobody):
            one.fn(config, 0)
        asks_nobody.fn(config, 1)
        kept = result_of(run.lake, 0, "filter") or {}
        assert kept["charged"] == {"judge": 1_000_000, "reflect": 1_000_000, "think": 1_000_000, "train": 500_000}
        assert "charged" not in (result_of(run.lake, 0, "promote") or {})
        cost = spent(run.lake, budget)
        assert (cost.tokens, cost.money) == (2_500_000, pytest.approx(7.5))  # thinkers' are rows of `thinking`
        ahead = {row.what: row.ahead for row in account(run.lake, budget, 3)}
        assert ahead == {"tokens": 7_500_000, "money": pytest.approx(22.5)}
        assert exhausted(run.lake, BudgetConfig(tokens=2_000_000)) is not None
