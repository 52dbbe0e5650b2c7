"""Block a promotion, by name, where held-out data was trained on: the comparison would not be fair.

Detect held-out data in training: shared seeds, and screens of both sides that are the same picture.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow.dataset as pads

from curation.pictures import bits_of
from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.evaluation import Evaluation
from schemas.tables.policy import PolicyVersion
from schemas.tables.trajectory import SPLIT_STARTS
from storage.catalog import ask
from storage.lake import Lake
from tasks.preflight.descent import require_held_out

NEAR = 8
"""Maximum number of differing bits, of 512, between hashes of one picture: noise or a cursor flips so many. No two of
16 tasks of MiniWoB++ ended on screens that near."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A held-out task that ends like trained trajectories of another task."""

    held_out: str
    trained: str
    screens: int
    """Number of the held-out task's last screens that the other task shares."""
    of: int


def same_screens(held_out: Mapping[str, Iterable[str]], trained: Iterable[tuple[str, str]], share: float) -> list[Leak]:
    """Return held-out tasks that share at least a given part of their distinct last screens with one trained task.

    Args:
        held_out: difference hashes of last screens by task.
        trained: task and hash of last screens that were trained on.
        share: of the held-out task's distinct screens, in (0, 1].
    """
    known = {task: {bits for one in hashes if (bits := _telling(one)) is not None} for task, hashes in held_out.items()}
    near: dict[tuple[str, str], set[int]] = {}
    for task, phash in trained:
        if (bits := _telling(phash)) is None:
            continue
        for own, screens in known.items():
            for screen in screens:
                if (screen ^ bits).bit_count() <= NEAR:
                    near.setdefault((own, task), set()).add(screen)
    return [
        Leak(own, task, len(found), len(known[own]))
        for (own, task), found in sorted(near.items())
        if len(found) >= share * len(known[own])
    ]


def _telling(phash: str) -> int | None:
    """Return the bits of a hash; None for one of another kind, and for a plain picture such as a blank page."""
    bits = bits_of(phash)
    return None if bits is None or bits.bit_count() <= NEAR else bits


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
