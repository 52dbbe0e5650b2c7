"""Find the step at which a failed trajectory went wrong, and learn from a correction that succeeded.

This is reflection tuning (UI-TARS, arXiv 2501.12326, section 4.5). A trajectory with an error at step k gives

    error correction   (..., o_k)  ->  the corrected thought and action, instead of the recorded ones
    post-reflection    (..., o_k, a_k, o_k+1)  ->  a thought that admits the error, and the action that recovers

To find the step, the first k actions are replayed in a sandbox of the same task and seed, and another action is tried.
The step is the last state from which a correction still succeeds. If a screen was shown several times, the search uses
its last occurrence, since an equal screen may have another state, and its last actions caused the failure. The search
begins at the trajectory's final state, which costs the least if the last action was wrong. It goes back in doubling
strides, then halves the range between a failed and a successful state.

The module also judges single steps in hindsight by rules: reflective filtering's fields (OpenCUA, arXiv 2508.09123). A
trajectory does not need a redundant step: it changed nothing, or it is between two occurrences of the same screen.
Rules cannot confirm that an action was correct; they only deny it if the action could not be performed.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from curation.gates.actions import fault_of
from curation.selection import noted_screens
from models.families.dialects import format_action, format_actions, format_reply
from models.thoughts import reflective_thought, templated_thought
from schemas.action import TERMINAL, Action, from_json, from_json_list
from schemas.tables.annotation import Annotation
from schemas.tables.pair import Pair
from schemas.tables.reflection import RULES, Reflection
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory

CORRECTION = "correction"
"""Kind of a trajectory that continues from another one's state."""
REPLAY = "replay"
"""Author of findings from replays; their version is the id of the successful trajectory."""


@dataclass(slots=True)
class FailureSearch:
    """The search for the state at which one trajectory went wrong.

    Args:
        states: ascending steps of the trajectory to which the search may go back (`states_of`).
        attempts: number of failed attempts after which a state counts as lost.
        hint: the error's step by another source, at which the search begins.
    """

    states: Sequence[int]
    attempts: int
    hint: int | None = None
    failed: dict[int, int] = field(default_factory=dict[int, int])
    """Number of failed attempts, by state."""
    best: int | None = None
    """The last state from which an attempt succeeded."""

    def next(self) -> int | None:
        """Return the state to try next; None if the search has ended."""
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
        """Record the result of an attempt."""
        if success:
            self.best = state if self.best is None else max(self.best, state)
        else:
            self.failed[state] = self.failed.get(state, 0) + 1

    def _first(self) -> int:
        known = [at for at, step in enumerate(self.states) if self.hint is None or step <= self.hint]
        return known[-1] if known else 0


def states_of(failed: Trajectory, steps: Sequence[Step], latest: int) -> list[int]:
    """Return the steps to which the search may go back: every screen's last occurrence, and the final step.

    Steps after one without an action cannot be replayed.

    Args:
        failed: the trajectory.
        steps: the trajectory's own steps, at least one.
        latest: the last step from which a correction has its full number of steps. A screen that occurs up to this step
            counts with its last occurrence up to it; a screen that occurs only later, with its first occurrence.
    """
    end = next((number for number, step in enumerate(steps) if not step.actions), len(steps) - 1)
    shown: dict[str, int] = {}
    for number, step in enumerate(steps[: end + 1]):
        if number <= latest or step.screenshot not in shown:
            shown[step.screenshot] = number
    ended = () if failed.termination == "max_steps" else (end,)
    return sorted({*shown.values(), *ended})


def hinted(states: Sequence[int], steps: Sequence[Step], known: int | None) -> int | None:
    """Return the start of a search with a known error: the last allowed occurrence of the error's screen."""
    if known is None or known >= len(steps):
        return known
    same = (at for at in states if at >= known and steps[at].screenshot == steps[known].screenshot)
    return max(same, default=known)


def led_nowhere(
    trajectories: Iterable[tuple[Trajectory, Sequence[Step]]], wrong: Step
) -> dict[str, tuple[Action, ...]]:
    """Return the actions that are known to fail, by screen, from trajectories of one task and seed.

    These actions ended a trajectory without success, could not be performed, or changed nothing visible; the recorded
    action of the `wrong` step is one of them. A reply with several actions has none: another first action may not help.
    """
    found: dict[str, dict[str, Action]] = {}
    if len(wrong.actions) == 1:
        found[wrong.screenshot] = {wrong.actions[0]: from_json(wrong.actions[0])}
    for trajectory, steps in trajectories:
        for step in steps:
            ended = step is steps[-1] and trajectory.termination not in ("max_steps", "truncated")
            lost = ended and trajectory.success is False
            noted = step.types == ["note"]
            still = step.next_screenshot == step.screenshot and not (noted or (ended and trajectory.success))
            if len(step.actions) == 1 and (lost or still or step.action_error):
                found.setdefault(step.screenshot, {})[step.actions[0]] = from_json(step.actions[0])
    return {screen: tuple(actions.values()) for screen, actions in found.items()}


def recoverable(failed: Trajectory, steps: Sequence[Step], state: int) -> bool:
    """Whether a trajectory continued after the step, so that a later step can recover."""
    step = steps[state]
    performed = bool(step.actions) and not step.action_error and not set(step.types) & set(TERMINAL)
    ended = state == len(steps) - 1 and failed.termination != "max_steps"
    return performed and not ended and step.next_screenshot is not None


@dataclass(frozen=True, slots=True)
class CorrectedTrajectory:
    """A failed trajectory and one that continued from its state and succeeded."""

    failed: Trajectory
    recorded: Sequence[Step]
    """Steps of the failed trajectory."""
    verified: Trajectory
    performed: Sequence[Step]
    """Steps of the successful trajectory; the first `verified.replayed` steps repeat the failed trajectory's."""
    reflects: bool = False
    """Whether the last replayed step is the error from which the trajectory recovers."""

    @property
    def step(self) -> int:
        """The corrected or recovering step."""
        return self.verified.replayed

    @property
    def kind(self) -> Literal["correction", "reflection"]:
        """Kind of its annotation."""
        return "reflection" if self.reflects else "correction"


def annotation_of(correction: CorrectedTrajectory, now: datetime) -> Annotation:
    """Annotate the failed trajectory with the successful action; the author is the policy version that acted."""
    step = correction.performed[correction.step]
    return Annotation(
        annotation_id=_name(correction, correction.kind),
        trajectory_id=correction.failed.trajectory_id,
        step=correction.step,
        iteration=correction.failed.iteration,
        kind=correction.kind,
        author=step.policy_version,
        thought=_thought(step),
        action=step.first,
        before=None,
        after=None,
        created_at=now,
    )


def finding_of(correction: CorrectedTrajectory, now: datetime) -> Reflection:
    """Return the finding that the failed trajectory went wrong at a step, since another action succeeded there."""
    step = correction.performed[correction.step]
    done = ", ".join(format_action(action) for action in from_json_list(step.actions))
    return Reflection(
        trajectory_id=correction.failed.trajectory_id,
        step=correction.step,
        author=REPLAY,
        version=correction.verified.trajectory_id,
        iteration=correction.failed.iteration,
        last_step_correct=False,
        last_step_redundant=None,
        reflection=f"in its place {done} succeeded",
        created_at=now,
    )


def pair_of(correction: CorrectedTrajectory) -> Pair | None:
    """Prefer the corrected reply to the recorded one.

    Return None if both have the same action, or if the correction has no visible effect, since a later step then
    decided. The thoughts of both sides are by the same author, so that the preference concerns the action and not the
    style.
    """
    if correction.step >= len(correction.recorded):
        return None
    chosen, rejected = correction.performed[correction.step], correction.recorded[correction.step]
    in_vain = chosen.next_screenshot == chosen.screenshot and chosen is not correction.performed[-1]
    if chosen.actions == rejected.actions or in_vain:
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
    """Return at most `most` names, taken in turn from each group, with the groups in their order."""
    turns = max((len(group) for group in names.values()), default=0)
    found = [group[turn] for turn in range(turns) for group in names.values() if turn < len(group)]
    return found[:most]


def _thought(step: Step) -> str:
    return step.thought or (templated_thought(from_json(step.first)) if step.first else "")


def _thoughts(chosen: Step, rejected: Step, reflects: bool) -> tuple[str, str]:
    """Return thoughts for both sides: the recorded ones if the same actor wrote both, else templated thoughts.

    There are none if one side has no template. A reply without an action is unchanged, and the other side gets the same
    thought.
    """
    if rejected.first is None or chosen.first is None:
        return rejected.thought, rejected.thought
    if chosen.actor == rejected.actor and chosen.thought and rejected.thought:
        return chosen.thought, rejected.thought
    better, worse = (templated_thought(from_json(action)) for action in (chosen.first, rejected.first))
    if not (better and worse):
        return "", ""
    return reflective_thought(better) if reflects else better, worse


def _reply(step: Step, thought: str) -> str:
    if not step.actions:
        return step.raw_text
    return format_reply(thought, format_actions(from_json_list(step.actions)))


def _name(correction: CorrectedTrajectory, what: str) -> str:
    name = f"{what}|{correction.failed.trajectory_id}|{correction.verified.trajectory_id}"
    return hashlib.sha256(name.encode()).hexdigest()[:24]


VERSION = "3"
"""Version of the rules; increase it whenever a step may get another finding."""


def reflections_of(trajectory: Trajectory, steps: Sequence[Step], now: datetime) -> list[Reflection]:
    """Return a row for every step with a finding, in order."""
    found: list[Reflection] = []
    redundant = redundant_steps(trajectory, steps)
    for step in steps:
        fault, why = fault_of(step), redundant.get(step.step)
        if not (fault or why):
            continue
        found.append(
            Reflection(
                trajectory_id=step.trajectory_id,
                step=step.step,
                author=RULES,
                version=VERSION,
                iteration=step.iteration,
                last_step_correct=False if fault else None,
                last_step_redundant=True if why else None,
                reflection=why or f"It {fault}.",
                created_at=now,
            )
        )
    return found


def redundant_steps(trajectory: Trajectory, steps: Sequence[Step]) -> dict[int, str]:
    """Return the steps that the trajectory does not need, each with the reason in a sentence.

    The last step is never redundant, since it was rewarded or ended the trajectory. A step without a recorded outcome
    is never redundant either.
    """
    states = noted_screens(steps)
    last = {state: at for at, state in enumerate(states)}
    found: dict[int, str] = {}
    at = 0
    while at < len(steps):
        back = last[states[at]]
        for step in steps[at:back]:
            found[step.step] = (
                "It changed nothing on the screen."
                if changed_nothing(step)
                else f"The screen of step {steps[at].step} comes again at step {steps[back].step}: a detour."
            )
        at = back + 1
    return found


def changed_nothing(step: Step) -> bool:
    """Whether the screens before and after a step's action are equal pixel by pixel; false for a terminal action and a
    note."""
    return step.next_screenshot == step.screenshot and not {*step.types} & {*TERMINAL, "note"}
