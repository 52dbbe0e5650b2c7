"""Reads from the lake what people and programs see of its quality; a bounded amount, however long the wheel turned."""

import json
from typing import Any

from schemas.failure import UsageError
from schemas.tables.stage import label_of, turn
from storage.catalog import ask
from storage.lake import Lake

ITERATIONS, FAILING = 100, 50
"""How many are shown at once, the newest ones."""


def quality_of(lake: Lake, iteration: int | None, before: int | None = None) -> dict[str, Any]:
    """`iterations`, the newest first, and `results`: of one iteration all of them, else those that failed.

    Args:
        lake: whose.
        iteration: only this one; the newest hundred if not given.
        before: the newest hundred before this one.

    Returns:
        Also `checked`, how many iterations there are in all, and `older`, the next `before`, None if none are older.

    Raises:
        UsageError: no gate has checked that iteration.
    """
    known = sorted(lake.iterations("quality"), key=turn, reverse=True)
    if iteration is not None and iteration not in known:
        there = ", ".join(label_of(one) for one in known[:10]) or "none"
        raise UsageError(f"No gate has checked {label_of(iteration)}.", f"Checked: {there}; `flywheel quality check`.")
    left = known if before is None else [one for one in known if turn(one) < turn(before)]
    shown = [iteration] if iteration is not None else left[:ITERATIONS]
    span: dict[str, Any] = {"first": min(shown, default=0), "last": max(shown, default=0)}
    rows = ask(lake, "quality_found", failing=iteration is None, **span).to_pylist()
    results = [_result(result) for row in rows for result in row.pop("results") or ()]
    return {
        "lake": lake.uri,
        "checked": len(known),
        "older": shown[-1] if len(left) > len(shown) and iteration is None else None,
        "iterations": [_iteration(row) for row in rows],
        "results": results if iteration is not None else results[:FAILING],
    }


def _iteration(row: dict[str, Any]) -> dict[str, Any]:
    drift = {one["measure"]: {"value": one["value"], "success": one["success"]} for one in row["drift"] or ()}
    return {**row, "label": label_of(row["iteration"]), "drift": dict(sorted(drift.items()))}


def _result(row: dict[str, Any]) -> dict[str, Any]:
    examples = [one if isinstance(one, dict) else {"row": one} for one in json.loads(row["examples"] or "[]")]
    ids = [one["trajectory_id"] for one in examples if one.get("trajectory_id")]
    return {
        **row,
        "label": label_of(row["iteration"]),
        "examples": examples,
        "trajectories": list(dict.fromkeys(ids)),
    }
