"""Count a lake's cost, and compare it with its budget.

Steps are sandbox steps in collection, corrections and evaluation; hours are the stages' own work; tokens are those that
policies wrote, and those that servers counted for thinkers, judges and proposers; money is hours and tokens at their
prices. Imported data cost nothing here. All counts are in the lake, so a killed run has spent what it wrote; judges'
and proposers' tokens are written as a stage ends.
"""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from common.text import counted
from schemas.config.operations import BudgetConfig
from schemas.failure import Paused
from storage.catalog import answers
from storage.lake import Lake


class Spent(BaseModel):
    """Cost of a lake."""

    model_config = ConfigDict(frozen=True)

    steps: int
    hours: float
    tokens: int
    money: float


@dataclass(frozen=True, slots=True)
class IterationCost:
    """Cost of one iteration; fields as in `storage/queries/cost.sql`."""

    steps: int
    seconds: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Account:
    """One part of a budget."""

    what: str
    spent: float
    allowed: float
    ahead: float | None
    """Expected cost of the requested iterations; None while the lake has no finished iteration."""


class Exhausted(BaseModel):
    """A spent budget, which ends a flow like a pause."""

    model_config = ConfigDict(frozen=True)

    what: str
    spent: float
    allowed: float

    @property
    def text(self) -> str:
        """The message in a sentence."""
        return f"The budget is spent: {short(self.spent)} of {short(self.allowed)} {self.what} (`budget.{self.what}`)."

    def refusal(self) -> Paused:
        """Return the error for a command that would begin something."""
        return Paused(self.text, f"After raising `budget.{self.what}` the same command goes on from here.")


def spent(lake: Lake, budget: BudgetConfig) -> Spent:
    """Return a lake's cost so far, at the budget's prices."""
    rows = [_finished(lake, at) if done else _cost(lake, at) for at, done in _iterations(lake)]
    steps, tokens = sum(row.steps for row in rows), sum(row.tokens for row in rows)
    hours = sum(row.seconds for row in rows) / 3600
    money = hours * budget.hour_price + tokens / 1e6 * budget.million_tokens_price
    return Spent(steps=steps, hours=hours, tokens=tokens, money=money)


def exhausted(lake: Lake, budget: BudgetConfig) -> Exhausted | None:
    """Return the first spent part of the budget; None while there is some left of each."""
    if not budget.limits:
        return None
    cost = spent(lake, budget)
    over = ((what, getattr(cost, what), allowed) for what, allowed in budget.limits.items())
    return next((Exhausted(what=what, spent=got, allowed=most) for what, got, most in over if got >= most), None)


def require_budget(lake: Lake, budget: BudgetConfig) -> None:
    """Raise Paused where a part of the budget is spent."""
    if used_up := exhausted(lake, budget):
        raise used_up.refusal()


def account(lake: Lake, budget: BudgetConfig, iterations: int = 0) -> list[Account]:
    """Return each part of a budget, with the expected cost of so many more iterations."""
    cost, finished = spent(lake, budget), sum(done and at >= 0 for at, done in _iterations(lake))
    return [
        Account(what, got := getattr(cost, what), allowed, got / finished * iterations if finished else None)
        for what, allowed in budget.limits.items()
    ]


def sentence(row: Account, iterations: int) -> str:
    """Return one row of an account as a sentence."""
    text = f"{short(row.spent)} of {short(row.allowed)} {row.what} spent"
    if not iterations:
        return text
    if row.ahead is None:
        return f"{text}; the cost of {counted(iterations, 'more iteration')} is unknown before the first finished one"
    over = row.spent + row.ahead > row.allowed
    end = ": the run will end early, between two stages" if over else ""
    return f"{text}; {counted(iterations, 'more iteration')} about {short(row.ahead)}{end}"


def short(amount: float) -> str:
    """Format an amount: whole from a hundred on, else with three digits."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"


def _iterations(lake: Lake) -> list[tuple[int, bool]]:
    """Return the iterations with a cost here, the preparation first, and whether they are over."""
    stages = lake.read("stages", ["iteration", "stage"]).to_pylist()
    begun = sorted({row["iteration"] for row in stages if row["iteration"] >= -1})
    done = {row["iteration"] for row in stages if row["stage"] == "promote"}
    newest = begun[-1:]
    return [(at, at in done and at not in newest) for at in begun] + [(at + 1, False) for at in newest]


def _cost(lake: Lake, iteration: int) -> IterationCost:
    return answers(lake, IterationCost, "cost", iteration=iteration)[0]


def _finished(lake: Lake, iteration: int) -> IterationCost:
    """Return the cost of a finished iteration, which a process counts once."""
    name = (lake.lake_id, iteration)
    if name not in _OVER:
        _OVER[name] = _cost(lake, iteration)
    return _OVER[name]


_OVER: dict[tuple[str, int], IterationCost] = {}
"""Costs by lake and iteration."""
