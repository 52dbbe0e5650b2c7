"""Pause and resume a lake, count its cost, and compare the cost with the budget.

A pause is a state of the lake, and no process waits for its end. While a lake is paused, no new work starts. A flow
that runs iterations or trains ends at the next boundary between two stages (`tasks.running.boundary`). After `flywheel
resume`, the same command continues from this boundary.

`budget` in the config defines steps, hours, tokens and money. Imported data costs nothing. All counts come from the
lake, so the cost of a killed run includes only what the run wrote. Tokens of judges, proposers and teachers are
written at the end of a stage.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from common.text import Storable, counted
from schemas.config.operations import BudgetConfig
from schemas.failure import LakeError, Paused
from schemas.table import utc_now
from storage.catalog import answers
from storage.lake import Lake

FILE = "control/pause.json"
"""File of the pause, among the lake's blobs."""


class Pause(BaseModel):
    """A pause, with its author, time and reason."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    reason: Annotated[Storable, Field(min_length=1, max_length=500)]
    by: Annotated[Storable, Field(min_length=1, max_length=100)]
    since: datetime

    @property
    def text(self) -> str:
        """Returns the message in one line, without control characters."""
        return f"The lake is paused since {self.since:%Y-%m-%d %H:%M} UTC by {_line(self.by)}: {_line(self.reason)}."

    def refusal(self) -> Paused:
        """Return the error for a command that would start new work."""
        return Paused(self.text, "After `flywheel resume`, the same command continues.")


def _line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split()).rstrip(".")


def pause(lake: Lake, reason: str, by: str) -> Pause:
    """Pause the lake. If the lake is already paused, replace the reason."""
    made = Pause(reason=reason, by=by, since=utc_now())
    lake.blobs.store.put(FILE, made.model_dump_json().encode())
    return made


def resume(lake: Lake) -> bool:
    """End the pause of the lake, and return whether the lake was paused."""
    store = lake.blobs.store
    there = store.exists(FILE)
    store.delete(FILE)
    return there


def pause_of(lake: Lake) -> Pause | None:
    """Return the pause of the lake, or None.

    Raises:
        LakeError: the file of the pause cannot be read.
    """
    try:
        return Pause.model_validate_json(lake.blobs.store.get(FILE))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise LakeError(
            f"{FILE} of the lake at {lake.uri} is not a pause record.", "`flywheel resume` removes it."
        ) from error


def require_unpaused(lake: Lake) -> None:
    """Raise Paused if the lake is paused. The message has the author, time and reason."""
    if there := pause_of(lake):
        raise there.refusal()


class Spent(BaseModel):
    """Cost of a lake."""

    model_config = ConfigDict(frozen=True)

    steps: int
    hours: float
    tokens: int
    money: float


@dataclass(frozen=True, slots=True)
class IterationCost:
    """Cost of one iteration, with the columns of `storage/queries/cost.sql`."""

    steps: int
    seconds: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Account:
    """One part of a budget, such as its steps."""

    what: str
    spent: float
    allowed: float
    ahead: float | None
    """Expected cost of the requested iterations; None if the lake has no finished iteration."""


class Exhausted(BaseModel):
    """A spent budget, which ends a flow as a pause does."""

    model_config = ConfigDict(frozen=True)

    what: str
    spent: float
    allowed: float

    @property
    def text(self) -> str:
        """Returns the message as a sentence."""
        return f"The budget is spent: {short(self.spent)} of {short(self.allowed)} {self.what} (`budget.{self.what}`)."

    def refusal(self) -> Paused:
        """Return the error for a command that would start new work."""
        return Paused(self.text, f"Raise `budget.{self.what}`; the same command then continues.")


def spent(lake: Lake, budget: BudgetConfig, iterations: Collection[int] | None = None) -> Spent:
    """Return the cost of a lake, or of some of its iterations, so far, at the prices of the budget."""
    counted_ones = [(at, done) for at, done in _iterations(lake) if iterations is None or at in iterations]
    rows = [_finished(lake, at) if done else _cost(lake, at) for at, done in counted_ones]
    steps, tokens = sum(row.steps for row in rows), sum(row.tokens for row in rows)
    hours = sum(row.seconds for row in rows) / 3600
    money = hours * budget.hour_price + tokens / 1e6 * budget.million_tokens_price
    return Spent(steps=steps, hours=hours, tokens=tokens, money=money)


def exhausted(lake: Lake, budget: BudgetConfig) -> Exhausted | None:
    """Return the first part of the budget that is spent; None if no part is spent."""
    if not budget.limits:
        return None
    cost = spent(lake, budget)
    over = ((what, getattr(cost, what), allowed) for what, allowed in budget.limits.items())
    return next((Exhausted(what=what, spent=got, allowed=most) for what, got, most in over if got >= most), None)


def require_budget(lake: Lake, budget: BudgetConfig) -> None:
    """Raise Paused if a part of the budget is spent."""
    if used_up := exhausted(lake, budget):
        raise used_up.refusal()


def account(lake: Lake, budget: BudgetConfig, iterations: int = 0) -> list[Account]:
    """Return each part of a budget, with the expected cost of a number of further iterations."""
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
    """Format an amount: as a whole number from 100 on, else with three digits."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"


def _iterations(lake: Lake) -> list[tuple[int, bool]]:
    """Return the iterations with a cost in this lake, the preparation first, each with whether it is finished."""
    stages = lake.read("stages", ["iteration", "stage"]).to_pylist()
    begun = sorted({row["iteration"] for row in stages if row["iteration"] >= -1})
    done = {row["iteration"] for row in stages if row["stage"] == "promote"}
    newest = begun[-1:]
    return [(at, at in done and at not in newest) for at in begun] + [(at + 1, False) for at in newest]


def _cost(lake: Lake, iteration: int) -> IterationCost:
    return answers(lake, IterationCost, "cost", iteration=iteration)[0]


def _finished(lake: Lake, iteration: int) -> IterationCost:
    """Return the cost of a finished iteration. Each process counts this cost once."""
    name = (lake.lake_id, iteration)
    if name not in _OVER:
        _OVER[name] = _cost(lake, iteration)
    return _OVER[name]


_OVER: dict[tuple[str, int], IterationCost] = {}
"""Costs of finished iterations, by lake and iteration."""
