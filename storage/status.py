"""The wheel's laps as people and `flywheel status --json` see them: the status query with its intervals."""

from typing import Any

from storage.catalog import ask
from storage.intervals import mean_interval
from storage.lake import Lake


def iterations(lake: Lake) -> list[dict[str, Any]]:
    """One entry per iteration, oldest first; a number that is not there yet is None, and so is its interval.

    Keys: iteration, policy, success, ci (95 %, over tasks), n, explorer, trajectories, promoted, wall_s, stages_s.
    """
    return [_entry(row) for row in ask(lake, "status").to_pylist()]


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    interval = mean_interval(row["task_successes"] or [], row["task_plays"] or [])
    return {
        "iteration": row["iteration"],
        "policy": row["policy_version"],
        "success": row["success"],
        "ci": [interval.low, interval.high] if row["n"] else None,
        "n": row["n"],
        "explorer": row["explorer"],
        "trajectories": row["trajectories"],
        "promoted": row["promoted"],
        "wall_s": row["wall_s"],
        "stages_s": dict(row["stages_s"] or []),
    }
