"""Reads from the lake what people and programs see of its quality; a bounded amount, however long the wheel turned."""

import json
from typing import Any

from schemas.failure import UsageError
from schemas.tables.stage import label_of
from storage.catalog import ask
from storage.lake import Lake

ITERATIONS, FAILING = 1000, 50
"""How many are listed, the newest ones."""


def quality_of(lake: Lake, iteration: int | None) -> dict[str, Any]:
    """`iterations`, the newest first, and `results`: of one iteration all of them, else those that failed.

    Raises:
        UsageError: no gate has checked that iteration.
    """
    counts = ask(lake, "quality_iterations", limit=ITERATIONS).to_pylist()
    known = [row["iteration"] for row in counts]
    if iteration is not None and iteration not in known:
        there = ", ".join(label_of(one) for one in known[:10]) or "none"
        raise UsageError(f"No gate has checked {label_of(iteration)}.", f"Checked: {there}; `flywheel quality check`.")
    limit = FAILING if iteration is None else 10_000
    found = ask(lake, "quality_results", iteration=iteration, failing=iteration is None, limit=limit).to_pylist()
    return {
        "lake": lake.uri,
        "iterations": [{**row, "label": label_of(row["iteration"])} for row in counts],
        "results": [_result(row) for row in found],
    }


def _result(row: dict[str, Any]) -> dict[str, Any]:
    examples = [one if isinstance(one, dict) else {"row": one} for one in json.loads(row["examples"] or "[]")]
    ids = [one["trajectory_id"] for one in examples if one.get("trajectory_id")]
    return {
        **row,
        "label": label_of(row["iteration"]),
        "examples": examples,
        "trajectories": list(dict.fromkeys(ids)),
    }
