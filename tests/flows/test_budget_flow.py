"""A run whose budget is spent ends between two stages, and goes on once it is raised."""

import pytest

from apps.calling import call
from flows.flywheel import flywheel
from schemas.config.operations import BudgetConfig
from storage.lake import Lake
from tasks.running.budget import Exhausted, spent
from tasks.running.iterations import finished_iterations
from tests.flows.conftest import Turned


@pytest.mark.slow
def test_a_spent_budget_ends_a_run_cleanly_and_a_larger_one_lets_it_go_on(
    turned: Turned, capfd: pytest.CaptureFixture[str]
) -> None:
    small = turned(0)
    poor = small.model_copy(update={"budget": BudgetConfig(steps=1)})
    ended = flywheel(poor, iterations=1)
    assert isinstance(ended, Exhausted) and ended.what == "steps"
    said = capfd.readouterr().err
    assert "`budget.steps`" in said and "Traceback" not in said
    lake = Lake.open(small.lake)
    before = spent(lake, poor.budget).steps
    assert before > 0 and finished_iterations(lake) == []
    assert isinstance(flywheel(poor, iterations=1), Exhausted)
    assert spent(lake, poor.budget).steps == before
    capfd.readouterr()
    assert isinstance(call("flows.flywheel.flywheel", poor, 1), Exhausted)
    assert "budget" not in capfd.readouterr().err  # the command line says it, once
    assert flywheel(small, iterations=1) is None
    assert finished_iterations(lake) == [0]
