"""Block a promotion, by name, where held-out data was trained on: the comparison would not be fair."""

import pyarrow.dataset as pads

from curation.leakage import Leak, same_screens
from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.evaluation import Evaluation
from schemas.tables.policy import PolicyVersion
from schemas.tables.trajectory import SPLIT_STARTS
from storage.catalog import ask
from storage.lake import Lake
from tasks.preflight.descent import require_held_out

SHARE = 0.5
"""Minimum share of a solved held-out task's last screens among a trained task's that makes both the same task."""


def leak(config: Config, lake: Lake, candidate: PolicyVersion) -> str | None:
    """Return why a candidate's evaluation cannot be trusted; None where it was not trained on held-out data."""
    try:
        require_held_out(config, lake)
    except UsageError as error:
        return f"leakage: {error.problem}"
    pins = candidate.pins
    if not {"trajectories", "steps", "screenshots", "verdicts"} <= pins.keys():
        return None
    held = pads.field("seed") >= SPLIT_STARTS["validation"]
    rows = lake.read("trajectories", ["trajectory_id", "task_id", "seed"], held, pins["trajectories"]).to_pylist()
    if rows:
        one = min(rows, key=lambda row: row["trajectory_id"])
        return (
            f"leakage: {len(rows)} trajectories that it was trained from have held-out seeds, {one['trajectory_id']} "
            f"of {one['task_id']} seed {one['seed']} for one"
        )
    if config.promote.same_screens == "hold" and (copies := _copies(lake, candidate)):
        named = ", ".join(f"{one.held_out} ({one.screens} of {one.of} in {one.trained})" for one in copies)
        return (
            f"leakage: held-out tasks are solved on the screens of trained ones: {named}; take the same task "
            "out of `suite.held_out` or of `suite.tasks`; if they only look alike, set `promote.same_screens=ignore`"
        )
    return None


def _copies(lake: Lake, candidate: PolicyVersion) -> list[Leak]:
    """Return held-out tasks that a candidate solves on a trained task's screens.

    Failures are left out: they may end on the screen where every task begins.
    """
    ended: dict[str, set[str]] = {}
    for row in lake.rows(Evaluation, {"policy_version": candidate.policy_version, "suite": "held_out"}):
        if row.success and row.final_phash is not None:
            ended.setdefault(row.task_id, set()).add(row.final_phash)
    if not ended:
        return []
    trained = ask(lake, "last_screens", candidate.pins).to_pylist()
    return same_screens(ended, ((row["task_id"], row["phash"]) for row in trained), SHARE)
