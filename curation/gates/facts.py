"""Collects facts about other trajectories for the gates: successes of the same task, and accepted trajectories."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from curation.pictures import Detail
from curation.selection import noted_screens, shortest_way
from schemas.action import IDLE
from schemas.tables.step import Step
from schemas.tables.task import IMPORTED
from schemas.tables.trajectory import Trajectory

Looks = Mapping[str, int]
"""Difference hashes (`curation/pictures.py`) by the screenshots' sha256; pictures without one have no entry."""
Details = Callable[[str], Detail | None]
"""Returns a screenshot's finer hash by its sha256; None if the picture is not available."""


def unseen(name: str) -> None:
    """Return None, since no picture is available, so that only hashes are compared."""


_Alike = Callable[[str, int | None, str | None, int | None], bool]
"""Whether two screens, each given as its name and its hash, are equal."""


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """Properties of the known successes of one task; zeros if none is known."""

    successes: int = 0
    """Number of known successes."""
    changed: int = 0
    """Number of known successes in which the screen changed."""
    screens: int = 0
    """Minimum number of different screens on which nine of ten known successes act."""


@dataclass(frozen=True, slots=True)
class _ComparedStep:
    """The compared fields of one step."""

    actions: Sequence[Mapping[str, Any]]
    screen: str
    look: int | None
    next_screen: str | None
    next_look: int | None


@dataclass(frozen=True, slots=True)
class _AcceptedTrajectory:
    """The compared fields of one accepted trajectory."""

    trajectory_id: str
    group_id: str | None
    steps: Sequence[_ComparedStep]


@dataclass(slots=True)
class Accepted:
    """Accepted trajectories of earlier iterations, and those of this iteration so far."""

    _seen: dict[tuple[str, str], list[_AcceptedTrajectory]] = field(
        default_factory=dict[tuple[str, str], list[_AcceptedTrajectory]]
    )

    def add(self, trajectory: Trajectory, steps: Sequence[Step], stills: Looks) -> None:
        """Record an accepted trajectory; only its steps' actions and the screenshots before and after are read."""
        if all(step.actions for step in steps):
            key = asked(trajectory.task_id, trajectory.instruction)
            self._seen.setdefault(key, []).append(_seen(trajectory, steps, stills))

    def like(
        self,
        trajectory: Trajectory,
        steps: Sequence[Step],
        stills: Looks,
        most_bits: int,
        distance: float,
        details: Details = unseen,
    ) -> str | None:
        """Return the accepted trajectory of which this trajectory is a near-duplicate; None if there is none.

        A near-duplicate has the same task and instruction (`asked`) and the same actions on the same screens. Both may
        also have detours and idle steps, which lead back to a screen, wait or change no pixel. One of them may have
        steps, except the last, that change no more than a cursor. Trajectories of the same group are not compared,
        since repetitions are intended in a group, and a repeated step has no weight
        (`storage/queries/training_weights.sql`).

        Args:
            trajectory, steps: the trajectory to compare with the accepted ones.
            stills: hashes of its screens.
            most_bits: maximum number of differing bits of equal screens' hashes.
            distance: maximum distance of equal points, as a share of the screen.
            details: confirms that two screens with similar hashes are equal, if it has both pictures.
        """
        others = self._seen.get(asked(trajectory.task_id, trajectory.instruction))
        if not others or not all(step.actions for step in steps):
            return None
        own = _seen(trajectory, steps, stills)

        def alike(one: str, look: int | None, two: str | None, other_look: int | None) -> bool:
            if one == two:
                return True
            if two is None or look is None or other_look is None or (look ^ other_look).bit_count() > most_bits:
                return False
            near = details(one), details(two)
            return near[0] is None or near[1] is None or near[0].like(near[1], most_bits)

        found = (
            other
            for other in others
            if other.trajectory_id != own.trajectory_id
            and (own.group_id is None or other.group_id != own.group_id)
            and _is_copy(own.steps, other.steps, alike, distance)
        )
        return next((other.trajectory_id for other in found), None)


def asked(task_id: str, instruction: str) -> tuple[str, str]:
    """Return the properties that possible copies share: the task and the instruction.

    An imported trajectory's task is only its file, so imports share the instruction without case and white space.
    `storage/queries/gate_accepted.sql` groups the lake's rows in the same way.
    """
    environment = task_id.partition("/")[0]
    return (environment, " ".join(instruction.split()).lower()) if environment == IMPORTED else (task_id, instruction)


def _seen(trajectory: Trajectory, steps: Sequence[Step], stills: Looks) -> _AcceptedTrajectory:
    way = [steps[at] for at in shortest_way(noted_screens(steps))]
    done = [
        _ComparedStep(
            [json.loads(action) for action in step.actions], step.screenshot, stills.get(step.screenshot),
            step.next_screenshot, stills.get(step.next_screenshot or ""),
        )
        for step in way
        if step is way[-1] or not (step.screenshot == step.next_screenshot or set(step.types) <= {*IDLE})
    ]  # fmt: skip
    return _AcceptedTrajectory(trajectory.trajectory_id, trajectory.group_id, done)


def _is_copy(one: Sequence[_ComparedStep], other: Sequence[_ComparedStep], alike: _Alike, distance: float) -> bool:
    """Whether the longer trajectory has all actions of the shorter in order, and is otherwise idle.

    The last step of each is never idle, since it was rewarded.
    """
    short, long = sorted((one, other), key=len)

    def same(one: _ComparedStep, two: _ComparedStep) -> bool:
        does = _do_the_same(one.actions, two.actions, distance)
        return does and alike(one.screen, one.look, two.screen, two.look)

    if not short or not same(short[-1], long[-1]):
        return False
    reached: set[int] = {0}
    for step in long[:-1]:
        on: set[int] = {at + 1 for at in reached if at < len(short) - 1 and same(short[at], step)}
        reached = on | (reached if len(short) < len(long) and _is_idle(step, alike) else set())
        if not reached:
            return False
    return len(short) - 1 in reached


def _is_idle(step: _ComparedStep, alike: _Alike) -> bool:
    idle = all(action["type"] in IDLE for action in step.actions)
    return idle or alike(step.screen, step.look, step.next_screen, step.next_look)


def _do_the_same(one: Sequence[Mapping[str, Any]], two: Sequence[Mapping[str, Any]], distance: float) -> bool:
    """Whether two replies have the same number of actions, each equal to the other's of the same place."""
    return len(one) == len(two) and all(_does_the_same(*pair, distance) for pair in zip(one, two, strict=True))


def _does_the_same(one: Mapping[str, Any], two: Mapping[str, Any], distance: float) -> bool:
    """Whether two actions are equal, except for points that lie near each other."""
    return one.keys() == two.keys() and all(
        abs(value - two[name]) <= distance if _is_place(value, two[name]) else value == two[name]
        for name, value in one.items()
    )


def _is_place(*values: object) -> bool:
    """Whether both values are coordinates, which are the only numbers in actions; JSON may write 1.0 as 1."""
    return all(isinstance(value, int | float) for value in values)
