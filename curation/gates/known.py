"""What gates know of other trajectories than the one they check: of its task, and which accepted ones are like it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.tables.step import Step
from schemas.tables.task import IMPORTED
from schemas.tables.trajectory import Trajectory

Looks = Mapping[str, int]
"""Difference hashes (`curation/pictures.py`) by the screenshots' sha256; of pictures without one there is none."""


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What the known successes of one task look like; nothing where none is known."""

    successes: int = 0
    """How many are known."""
    changed: int = 0
    """In how many of them the screen changed."""
    screens: int = 0
    """Different screens that nine in ten of them act on at the least."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One accepted trajectory, as far as it is compared."""

    trajectory_id: str
    group_id: str | None
    actions: tuple[Mapping[str, Any], ...]
    screens: tuple[str, ...]
    looks: tuple[int | None, ...]


@dataclass(slots=True)
class Accepted:
    """The accepted trajectories of earlier iterations and, so far, of this one."""

    _seen: dict[tuple[str, str, int], list[_Seen]] = field(default_factory=dict[tuple[str, str, int], list[_Seen]])

    def add(self, trajectory: Trajectory, steps: Sequence[Step], looks: Looks) -> None:
        """Notes an accepted trajectory; only its steps' actions and screenshots are read."""
        if all(step.action is not None for step in steps):
            self._seen.setdefault(_key(trajectory, steps), []).append(_seen(trajectory, steps, looks))

    def like(
        self, trajectory: Trajectory, steps: Sequence[Step], looks: Looks, most_bits: int, distance: float
    ) -> str | None:
        """The accepted trajectory that this one is a near-duplicate of; None for none.

        It was asked the same (`asked`) and does the same on the same screens. Those of its own group are left out:
        there repeats are meant, and a repeated step has no weight (`storage/queries/training_weights.sql`).

        Args:
            trajectory, steps: the one that is held against the accepted ones.
            looks: hashes of its screens.
            most_bits: in which the hashes of two screens may differ and be of one screen.
            distance: of the screen, within which two points are one.
        """
        others = self._seen.get(_key(trajectory, steps))
        if not others or any(step.action is None for step in steps):
            return None
        own = _seen(trajectory, steps, looks)
        found = (
            other
            for other in others
            if other.trajectory_id != own.trajectory_id
            and (own.group_id is None or other.group_id != own.group_id)
            and _shows_the_same(own, other, most_bits)
            and all(_does_the_same(one, two, distance) for one, two in zip(own.actions, other.actions, strict=True))
        )
        return next((other.trajectory_id for other in found), None)


def asked(task_id: str, instruction: str) -> tuple[str, str]:
    """What trajectories that may be copies of each other have in common: the task and the instruction; of imported
    ones, whose task is only the file that they came with, the instruction, its case and white space aside.

    `storage/queries/gate_accepted.sql` asks the lake for the same.
    """
    environment = task_id.partition("/")[0]
    return (environment, " ".join(instruction.split()).lower()) if environment == IMPORTED else (task_id, instruction)


def _key(trajectory: Trajectory, steps: Sequence[Step]) -> tuple[str, str, int]:
    return *asked(trajectory.task_id, trajectory.instruction), len(steps)


def _seen(trajectory: Trajectory, steps: Sequence[Step], looks: Looks) -> _Seen:
    return _Seen(
        trajectory.trajectory_id,
        trajectory.group_id,
        tuple(json.loads(step.action or "{}") for step in steps),
        tuple(step.screenshot for step in steps),
        tuple(looks.get(step.screenshot) for step in steps),
    )


def _shows_the_same(one: _Seen, two: _Seen, most_bits: int) -> bool:
    for screen, look, other_screen, other_look in zip(one.screens, one.looks, two.screens, two.looks, strict=True):
        if screen == other_screen:
            continue
        if look is None or other_look is None or (look ^ other_look).bit_count() > most_bits:
            return False
    return True


def _does_the_same(one: Mapping[str, Any], two: Mapping[str, Any], distance: float) -> bool:
    """Whether two actions are one, points aside that lie near each other."""
    return one.keys() == two.keys() and all(
        abs(value - two[name]) <= distance if _is_place(value, two[name]) else value == two[name]
        for name, value in one.items()
    )


def _is_place(*values: object) -> bool:
    """Whether these are coordinates, the only numbers in actions; JSON may write 1.0 as 1."""
    return all(isinstance(value, int | float) for value in values)
