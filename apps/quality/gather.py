"""Read a bounded number of quality results from the lake, for users and programs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.failure import UsageError
from schemas.tables.stage import chronological, label_of
from storage.catalog import answers
from storage.lake import Lake

ITERATIONS, FAILING = 100, 50
"""Maximum iterations and failures on one page, the newest ones."""


@dataclass(frozen=True, slots=True)
class MeasureDrift:
    """The shift of a measure from the previous iterations."""

    value: float
    success: bool


@dataclass(frozen=True, slots=True)
class Checked:
    """The results of one iteration's expectations."""

    iteration: int
    label: str
    checks: int
    held: int
    critical: int
    """Number of failed expectations that stop the iteration and have no override."""
    warnings: int
    broken: int
    """Number of checks that could not be made."""
    overridden: int
    unexpected: int
    """Number of rows that broke an expectation."""
    drift: dict[str, MeasureDrift]
    """Shifts by measure."""


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """The result of one expectation: a row of `quality`, and the user who overrode it."""

    iteration: int
    label: str
    table: str
    expectation: str
    severity: str
    success: bool
    observed: str
    unexpected: int
    examples: list[dict[str, Any]]
    """Rows that broke it, by their keys."""
    error: str | None
    because: str
    value: float | None
    override_reason: str | None
    override_by: str | None
    overridden: bool
    trajectories: list[str]
    """Trajectories of the examples."""


@dataclass(frozen=True, slots=True)
class Quality:
    """The results of one page."""

    lake: str
    checked: int
    """Total number of iterations."""
    older: int | None
    """The next `before`; None if none are older."""
    iterations: list[Checked]
    """The newest first."""
    results: list[ExpectationResult]
    """All results of one iteration, or the failed ones of several."""


def quality_of(lake: Lake, iteration: int | None, before: int | None = None) -> Quality:
    """Reads the gate's results.

    Args:
        lake: the lake.
        iteration: only this one; the newest hundred if not given.
        before: the newest hundred before this one.

    Raises:
        UsageError: no gate has checked that iteration.
    """
    known = sorted(lake.iterations("quality"), key=chronological, reverse=True)
    if iteration is not None and iteration not in known:
        there = ", ".join(label_of(one) for one in known[:10]) or "none"
        raise UsageError(
            f"No quality checks have run on {label_of(iteration)}.",
            f"Checked: {there}. Run `flywheel quality check --iteration {iteration}`.",
        )
    left = known if before is None else [one for one in known if chronological(one) < chronological(before)]
    shown = [iteration] if iteration is not None else left[:ITERATIONS]
    first, last = min(shown, default=0), max(shown, default=0)
    found = answers(lake, _found, "quality_found", failing=iteration is None, first=first, last=last)
    results = [result for _, of_it in found for result in of_it]
    return Quality(
        lake=lake.uri,
        checked=len(known),
        older=shown[-1] if len(left) > len(shown) and iteration is None else None,
        iterations=[row for row, _ in found],
        results=results if iteration is not None else results[:FAILING],
    )


def _found(
    iteration: int, drift: Sequence[Any] | None, results: Sequence[Any] | None, **counts: int
) -> tuple[Checked, list[ExpectationResult]]:
    moved = {one["measure"]: MeasureDrift(one["value"], one["success"]) for one in drift or ()}
    checked = Checked(iteration=iteration, label=label_of(iteration), drift=dict(sorted(moved.items())), **counts)
    return checked, [_result(**one) for one in results or ()]


def _result(iteration: int, examples: str, **found: Any) -> ExpectationResult:
    rows = [one if isinstance(one, dict) else {"row": one} for one in json.loads(examples or "[]")]
    ids = list(dict.fromkeys(one["trajectory_id"] for one in rows if one.get("trajectory_id")))
    return ExpectationResult(iteration=iteration, label=label_of(iteration), examples=rows, trajectories=ids, **found)
