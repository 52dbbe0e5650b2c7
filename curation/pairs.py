"""Make preferences from a successful and a failed trajectory that part at one step (Agent DPO).

Trajectories of one task and seed start from the same screen. They share a context as long as their screens and actions
agree. At the first different action, the successful trajectory's reply is preferred to the failed one's. An action that
led to success and to failure from the same context is not used, since it did not decide the outcome. A success that a
gate rejected is not used either, since it is neither an example nor a failure. Each reply is used once. The texts of a
pair are for reviewers; the policy's family formats the training text from the actions of the two steps.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from models.families.dialects import format_actions, format_reply
from schemas.action import from_json_list
from schemas.tables.pair import Pair


@dataclass(frozen=True, slots=True)
class PartingStep:
    """A step of a trajectory whose task and seed was both solved and failed."""

    task_id: str
    seed: int
    trajectory_id: str
    success: bool
    accepted: bool
    """Whether the newest decision sends it to supervised training."""
    verified: bool
    """Whether a verifier, not a judge, decided the outcome."""
    step: int
    screenshot: str
    raw_text: str
    actions: Sequence[str]
    thought: str


@dataclass(slots=True)
class _Crossing:
    """Steps from one context, by their action and the trajectory's outcome."""

    chosen: dict[str, PartingStep] = field(default_factory=dict[str, PartingStep])
    succeeded: set[str] = field(default_factory=set[str])
    failed: dict[str, PartingStep] = field(default_factory=dict[str, PartingStep])

    def add(self, action: str, step: PartingStep) -> None:
        """Record a step by its action; only accepted steps can be chosen."""
        if not step.success:
            self.failed.setdefault(action, step)
            return
        self.succeeded.add(action)
        if step.accepted:
            self.chosen.setdefault(action, step)

    def decided(self) -> Iterator[tuple[PartingStep, PartingStep]]:
        """Pair chosen with rejected steps, each step once; leaves out actions that led to both outcomes."""
        chosen = [step for action, step in self.chosen.items() if action not in self.failed]
        rejected = [step for action, step in self.failed.items() if action not in self.succeeded]
        return zip(chosen, rejected, strict=False)


def pairs_of(rows: Sequence[PartingStep], iteration: int) -> list[Pair]:
    """Return the pairs in rows of `storage/queries/parting_trajectories.sql`, in their order.

    Args:
        rows: steps in order, grouped by task and seed, then by trajectory.
        iteration: the current iteration.
    """
    found: dict[str, Pair] = {}
    for _, steps in groupby(rows, key=lambda row: (row.task_id, row.seed)):
        for crossing in _crossings(steps).values():
            for chosen, rejected in crossing.decided():
                pair = _pair(chosen, rejected, iteration)
                found.setdefault(pair.pair_id, pair)
    return list(found.values())


def reply_of(row: PartingStep) -> str:
    """Return a step's reply in thousandths of the screen; the recorded text if it has no action."""
    if not row.actions:
        return row.raw_text
    return format_reply(row.thought, format_actions(from_json_list(row.actions)))


def _crossings(rows: Iterable[PartingStep]) -> dict[tuple[str, ...], _Crossing]:
    """Group the steps by context (screens and actions up to a screen)."""
    crossings: dict[tuple[str, ...], _Crossing] = {}
    for _, steps in groupby(rows, key=lambda row: row.trajectory_id):
        context: tuple[str, ...] = ()
        for row in steps:
            context = (*context, row.screenshot)
            does = "\n".join(row.actions) or row.raw_text
            crossings.setdefault(context, _Crossing()).add(does, row)
            context = (*context, does)
    return crossings


def _pair(chosen: PartingStep, rejected: PartingStep, iteration: int) -> Pair:
    name = f"{chosen.trajectory_id}|{chosen.step}|{rejected.trajectory_id}|{rejected.step}"
    return Pair(
        pair_id=hashlib.sha256(name.encode()).hexdigest()[:24],
        trajectory_id=chosen.trajectory_id,
        step=chosen.step,
        iteration=iteration,
        task_id=chosen.task_id,
        seed=chosen.seed,
        kind="parting",
        chosen=reply_of(chosen),
        rejected=reply_of(rejected),
        rejected_trajectory_id=rejected.trajectory_id,
        verified=chosen.verified and rejected.verified,
    )
