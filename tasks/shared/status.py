"""The wheel's laps as people and `flywheel status --json` see them: the status query with its intervals."""

from typing import Any

from curation.intervals import mean_interval, wilson
from storage.catalog import ask
from storage.lake import Lake


def iterations(lake: Lake) -> list[dict[str, Any]]:
    """One entry per iteration, oldest first; a number that is not there yet is None, and so is its interval.

    Keys: iteration, policy, success, ci (95 %, over tasks), n, explorer, trajectories, verified, promoted, wall_s,
    orchestration_s (between the stages, so not part of wall_s), stages_s. `verified` is P(V=1 | iteration) of the
    policy's own plays: rate, ci (95 %), n.
    """
    own = {row["iteration"]: row for row in verified(lake) if row["kind"] == "policy"}
    return [_entry(row, own.get(row["iteration"])) for row in ask(lake, "status").to_pylist()]


def verified(lake: Lake) -> list[dict[str, Any]]:
    """P(V=1 | iteration) by iteration and kind of play: iteration, kind, n, rate, low and high (95 %)."""
    rows = [(row, wilson(row["verified"], row["n"])) for row in ask(lake, "verified").to_pylist()]
    return [
        {key: row[key] for key in ("iteration", "kind", "n")} | {"rate": at.mean, "low": at.low, "high": at.high}
        for row, at in rows
    ]


def _entry(row: dict[str, Any], own: dict[str, Any] | None) -> dict[str, Any]:
    interval = mean_interval(row["task_successes"] or [], row["task_plays"] or [])
    return {
        "iteration": row["iteration"],
        "policy": row["policy_version"],
        "success": row["success"],
        "ci": [interval.low, interval.high] if row["n"] else None,
        "n": row["n"],
        "explorer": row["explorer"],
        "trajectories": row["trajectories"],
        "verified": own and {"rate": own["rate"], "ci": [own["low"], own["high"]], "n": own["n"]},
        "promoted": row["promoted"],
        "wall_s": row["wall_s"],
        "orchestration_s": row["orchestration_s"],
        "stages_s": dict(row["stages_s"] or []),
    }
