"""Preferences from plays that were the same up to one step, where one succeeded and the other did not (Agent DPO).

Plays of one task and seed start from the same screen. As long as screen and action agree they are one; where the
actions part, the reply of the play that succeeded is preferred to that of the play that failed. An action that from the
same context led to both is on neither side: it did not decide. Each reply is used once.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from models.families.dialects import format_action, format_reply
from models.tiny.tokens import GRID
from schemas.action import from_json
from schemas.pair import Pair

StepRow = Mapping[str, Any]


@dataclass(slots=True)
class _Crossing:
    """What was done from one context: a step by action, apart by how its play ended."""

    won: dict[str, StepRow] = field(default_factory=dict)
    lost: dict[str, StepRow] = field(default_factory=dict)


def pairs_of(rows: Sequence[StepRow], iteration: int, dialect: str, grid: int = GRID) -> list[Pair]:
    """The pairs in rows of `storage/queries/parting_plays.sql`, in their order.

    Args:
        rows: steps with task_id, seed, trajectory_id, route, step, screenshot, raw_text, action, thought.
        iteration: the one that finds them.
        dialect: the policy's, in which replies are written.
        grid: thousandths between coordinates that the policy can tell apart.
    """
    found: dict[str, Pair] = {}
    for _, plays in groupby(rows, key=lambda row: (row["task_id"], row["seed"])):
        for crossing in _crossings(list(plays)).values():
            undecided = crossing.won.keys() & crossing.lost.keys()
            won, lost = (
                [row for action, row in side.items() if action not in undecided]
                for side in (crossing.won, crossing.lost)
            )
            for chosen, rejected in zip(won, lost, strict=False):
                pair = _pair(chosen, rejected, iteration, dialect, grid)
                found.setdefault(pair.pair_id, pair)
    return list(found.values())


def reply_of(row: StepRow, dialect: str, grid: int) -> str:
    """A step's reply as the policy would write it; where it held no action, as it was said."""
    if row["action"] is None:
        return row["raw_text"]
    return format_reply(row["thought"], format_action(from_json(row["action"]), dialect, grid))


def _crossings(rows: Sequence[StepRow]) -> dict[tuple[str, ...], _Crossing]:
    """Contexts (screens and actions up to a screen) with what was done from them."""
    crossings: dict[tuple[str, ...], _Crossing] = {}
    for _, steps in groupby(rows, key=lambda row: row["trajectory_id"]):
        context: tuple[str, ...] = ()
        for row in steps:
            context = (*context, row["screenshot"])
            crossing = crossings.setdefault(context, _Crossing())
            action = row["action"] or row["raw_text"]
            side = crossing.won if row["route"] == "sft" else crossing.lost
            side.setdefault(action, row)
            context = (*context, action)
    return crossings


def _pair(chosen: StepRow, rejected: StepRow, iteration: int, dialect: str, grid: int) -> Pair:
    name = f"{chosen['trajectory_id']}|{chosen['step']}|{rejected['trajectory_id']}|{rejected['step']}"
    return Pair(
        pair_id=hashlib.sha256(name.encode()).hexdigest()[:24],
        trajectory_id=chosen["trajectory_id"],
        step=chosen["step"],
        iteration=iteration,
        task_id=chosen["task_id"],
        seed=chosen["seed"],
        kind="parting",
        chosen=reply_of(chosen, dialect, grid),
        rejected=reply_of(rejected, dialect, grid),
        rejected_trajectory_id=rejected["trajectory_id"],
        verified=True,
    )
