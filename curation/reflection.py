"""Where a failed trajectory went wrong, and what is learnt from a correction that was seen to succeed.

Reflection tuning (UI-TARS, arXiv 2501.12326, section 4.5). Of a trajectory with an error at step k

    error correction   (..., o_k)  ->  the corrected thought and action, in the place of the recorded ones
    post-reflection    (..., o_k, a_k, o_k+1)  ->  a thought that admits the error, and the action that recovers

The step is found by replaying the first k actions in a sandbox of the same task and seed and trying something else
there: it is the last state from which a correction still succeeds. A screen that was shown several times is gone back
to at its last showing, whatever was done in between: it may look the same and not be, and what was done there in the
end is what went wrong, not what was done there first in vain. The search begins at the state in which the trajectory
ended, which costs the least where the last action was the wrong one, goes back in strides that double, and then halves
what is left between the last state that was tried in vain and the first that was not.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from models.families.dialects import format_action, format_reply
from models.thoughts import reflective_thought, templated_thought
from schemas.action import TERMINAL, Action, from_json
from schemas.tables.annotation import Annotation
from schemas.tables.pair import Pair
from schemas.tables.reflection import Reflection
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory

CORRECTION = "correction"
"""Who acts in a trajectory that goes on from another one's state."""
REPLAY = "replay"
"""The author of what is found by going back; its version is the trajectory that succeeded."""


@dataclass(slots=True)
class FailureSearch:
    """The search for the state at which one trajectory went wrong.

    Args:
        states: steps of the trajectory that may be gone back to, rising (`states_of`).
        attempts: how often a state is tried before it counts as one from which nothing succeeds.
        hint: the step at which it went wrong as somebody knows it; the search begins there.
    """

    states: Sequence[int]
    attempts: int
    hint: int | None = None
    failed: dict[int, int] = field(default_factory=dict[int, int])
    """Attempts in vain, by state."""
    best: int | None = None
    """The last state from which one succeeded."""

    def next(self) -> int | None:
        """The state to try next; None when the search is over."""
        vain = sorted(at for at, step in enumerate(self.states) if self.failed.get(step, 0) >= self.attempts)
        if self.best is not None:
            after = [at for at in vain if at > self.states.index(self.best)]
            between = (self.states.index(self.best) + after[0]) // 2 if after else None
            return None if between is None or self.states[between] == self.best else self.states[between]
        if not self.states:
            return None
        if not vain:
            return self.states[self._first()]
        if vain[0] == 0:
            return None
        return self.states[max(0, vain[0] - 2 ** (len(vain) - 1))]

    def note(self, state: int, success: bool) -> None:
        """What came of an attempt."""
        if success:
            self.best = state if self.best is None else max(self.best, state)
        else:
            self.failed[state] = self.failed.get(state, 0) + 1

    def _first(self) -> int:
        known = [at for at, step in enumerate(self.states) if self.hint is None or step <= self.hint]
        return known[-1] if known else 0


def states_of(failed: Trajectory, steps: Sequence[Step], latest: int) -> list[int]:
    """The steps of a trajectory that may be gone back to: the last showing of every screen, and the step that ended it.

    What comes after a step without an action cannot be replayed.

    Args:
        failed: the trajectory.
        steps: its own, at least one.
        latest: the last step that leaves a correction all the steps it may take. Of a screen that was shown up to then
            and again later, the last showing up to then counts; of one that was not, the first.
    """
    end = next((number for number, step in enumerate(steps) if step.action is None), len(steps) - 1)
    shown: dict[str, int] = {}
    for number, step in enumerate(steps[: end + 1]):
        if number <= latest or step.screenshot not in shown:
            shown[step.screenshot] = number
    ended = () if failed.termination == "max_steps" else (end,)
    return sorted({*shown.values(), *ended})


def hinted(states: Sequence[int], steps: Sequence[Step], known: int | None) -> int | None:
    """Where a search begins that knows of an error: at the last showing of its screen that may be gone back to."""
    if known is None or known >= len(steps):
        return known
    same = (at for at in states if at >= known and steps[at].screenshot == steps[known].screenshot)
    return max(same, default=known)


def led_nowhere(
    trajectories: Iterable[tuple[Trajectory, Sequence[Step]]], wrong: Step
) -> dict[str, tuple[Action, ...]]:
    """What is known to lead nowhere by screen, from trajectories of one task and seed: actions that ended one without
    success, that could not be performed, or that changed nothing to be seen; and the recorded one that is `wrong`."""
    found: dict[str, dict[str, Action]] = {}
    if wrong.action is not None:
        found[wrong.screenshot] = {wrong.action: from_json(wrong.action)}
    for trajectory, steps in trajectories:
        for step in steps:
            ended = step is steps[-1] and trajectory.termination not in ("max_steps", "truncated")
            lost = ended and trajectory.success is False
            still = step.next_screenshot == step.screenshot and not (ended and trajectory.success)
            if step.action is not None and (lost or still or step.action_error):
                found.setdefault(step.screenshot, {})[step.action] = from_json(step.action)
    return {screen: tuple(actions.values()) for screen, actions in found.items()}


def recoverable(failed: Trajectory, steps: Sequence[Step], state: int) -> bool:
    """Whether a trajectory went on after the step: one that the step ended cannot recover from it."""
    step = steps[state]
    performed = step.action is not None and not step.action_error and from_json(step.action).type not in TERMINAL
    ended = state == len(steps) - 1 and failed.termination != "max_steps"
    return performed and not ended and step.next_screenshot is not None


@dataclass(frozen=True, slots=True)
class CorrectedTrajectory:
    """A failed trajectory and one that went on from its state and succeeded."""

    failed: Trajectory
    recorded: Sequence[Step]
    """Steps of the failed one."""
    verified: Trajectory
    performed: Sequence[Step]
    """Steps of the one that succeeded; the first `verified.replayed` are the other's."""
    reflects: bool = False
    """Whether the last step that was replayed is the error, which is then recovered from."""

    @property
    def step(self) -> int:
        """The step that was corrected, or that recovers."""
        return self.verified.replayed

    @property
    def kind(self) -> Literal["correction", "reflection"]:
        """The kind of its annotation."""
        return "reflection" if self.reflects else "correction"


def annotation_of(correction: CorrectedTrajectory, now: datetime) -> Annotation:
    """What should have been done, as an annotation of the failed trajectory; its author proposed it."""
    step = correction.performed[correction.step]
    return Annotation(
        annotation_id=_name(correction, correction.kind),
        trajectory_id=correction.failed.trajectory_id,
        step=correction.step,
        iteration=correction.failed.iteration,
        kind=correction.kind,
        author=step.policy_version,
        thought=_thought(step),
        action=step.action,
        before=None,
        after=None,
        created_at=now,
    )


def finding_of(correction: CorrectedTrajectory, now: datetime) -> Reflection:
    """Where the failed trajectory went wrong, as something else succeeded there."""
    step = correction.performed[correction.step]
    action = format_action(from_json(step.action)) if step.action else ""
    return Reflection(
        trajectory_id=correction.failed.trajectory_id,
        step=correction.step,
        author=REPLAY,
        version=correction.verified.trajectory_id,
        iteration=correction.failed.iteration,
        last_step_correct=False,
        last_step_redundant=None,
        reflection=f"in its place {action} succeeded",
        created_at=now,
    )


def pair_of(correction: CorrectedTrajectory) -> Pair | None:
    """The corrected reply preferred to the recorded one; None where nothing else was done in its place, or nothing that
    the screen shows: then it was a later step that succeeded.

    The thoughts of both sides are by the same author, so that the preference is for what was done and for no style.
    """
    if correction.step >= len(correction.recorded):
        return None
    chosen, rejected = correction.performed[correction.step], correction.recorded[correction.step]
    in_vain = chosen.next_screenshot == chosen.screenshot and chosen is not correction.performed[-1]
    if chosen.action == rejected.action or in_vain:
        return None
    failed = correction.failed
    better, worse = _thoughts(chosen, rejected, correction.reflects)
    return Pair(
        pair_id=_name(correction, "pair"),
        trajectory_id=correction.verified.trajectory_id,
        step=correction.step,
        iteration=failed.iteration,
        task_id=failed.task_id,
        seed=failed.seed,
        kind="post_reflection" if correction.reflects else "correction",
        chosen=_reply(chosen, better),
        rejected=_reply(rejected, worse),
        rejected_trajectory_id=failed.trajectory_id,
        verified=True,
    )


def shares(names: Mapping[str, Sequence[str]], most: int) -> list[str]:
    """At most so many names, taken in turn from each group, the groups in their order."""
    turns = max((len(group) for group in names.values()), default=0)
    found = [group[turn] for turn in range(turns) for group in names.values() if turn < len(group)]
    return found[:most]


def _thought(step: Step) -> str:
    return step.thought or (templated_thought(from_json(step.action)) if step.action else "")


def _thoughts(chosen: Step, rejected: Step, reflects: bool) -> tuple[str, str]:
    """Thoughts for both sides: their own where the same actor had both, else templated ones, or none where one side has
    no template. A reply without an action stays as it was generated: the other side begins as it does."""
    if rejected.action is None or chosen.action is None:
        return rejected.thought, rejected.thought
    if chosen.actor == rejected.actor and chosen.thought and rejected.thought:
        return chosen.thought, rejected.thought
    better, worse = (templated_thought(from_json(action)) for action in (chosen.action, rejected.action))
    if not (better and worse):
        return "", ""
    return reflective_thought(better) if reflects else better, worse


def _reply(step: Step, thought: str) -> str:
    if step.action is None:
        return step.raw_text
    return format_reply(thought, format_action(from_json(step.action)))


def _name(correction: CorrectedTrajectory, what: str) -> str:
    name = f"{what}|{correction.failed.trajectory_id}|{correction.verified.trajectory_id}"
    return hashlib.sha256(name.encode()).hexdigest()[:24]
