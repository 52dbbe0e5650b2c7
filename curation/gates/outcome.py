"""The gates for outcomes: of the environment, of the verifier or judge, and of people.

`environment` rejects trajectories that ended because the environment failed. `success` uses the task's verifier, or a
judge if the task has none. `people` samples a share of the passed trajectories for review by people. The sample depends
only on the trajectory's id. So a larger share contains every smaller one, and repeated filter runs take the same
sample.
"""

import hashlib
import json
from collections.abc import Sequence

from curation.converters.exchanged import OWN, holds_back
from curation.gates.gate import Gate, GateContext, GateResult
from schemas.config.section import Section, Share
from schemas.failure import is_environment_failure
from schemas.tables.step import Step
from schemas.tables.trajectory import IMPORT, Route, Trajectory

CLAIMED = "imported as done by its own data, and no verifier here has checked it"
UNSEEN = "imported as done by its own data, but its task has no verifier, so a judge or a person has to check it"
DENIED = "imported as not done by its own data, and no verifier here has checked it"


class VerifierGate(Gate[Section]):
    """Passes successes of the verifier, whose reward reaches the task's threshold; leaves judged ones to the judge.

    An imported trajectory has no verdict of this lake, so its own data decides. A trajectory that its original lake
    held back stays held back, and no judge of this lake overrides this.
    """

    name = "verifier"
    rule = "3"

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult | None:
        """Pass a trajectory that reached its threshold; any other trajectory went wrong at its last step.

        An imported trajectory has no verdict of this lake: its own data decides, except for tasks of the suite that
        only a judge can score.
        """
        reward = trajectory.reward or 0.0
        imported = trajectory.policy == IMPORT
        held = _held_back(trajectory) if imported else None
        if held or context.judged is not None:
            return held
        if imported and trajectory.success and context.by_judge:
            return GateResult(False, UNSEEN, score=reward, route="quarantine")
        if trajectory.success:
            return GateResult(True, CLAIMED if imported else f"raw reward is {reward:g}", score=reward)
        if trajectory.termination == "done":
            last = steps[-1].step if steps else None
            why = DENIED if imported else f"ended with raw reward {reward:g}"
            return GateResult(False, why, score=reward, error_step=last)
        short = f" with raw reward {reward:g}" if reward else ""
        return GateResult(False, f"not done: {trajectory.termination}{short}", score=reward)


def _held_back(trajectory: Trajectory) -> GateResult | None:
    """Return the result of an imported trajectory that its original lake held back; None if it did not."""
    about = json.loads(trajectory.extra or "{}").get(OWN, {})
    route: Route | None = about.get("route")
    if not holds_back(route, trajectory.success):
        return None
    why = about.get("reason") or "no reason given"
    return GateResult(False, f"not accepted where it is from ({route}): {why}", score=trajectory.reward, route=route)


class JudgeGate(Gate[Section]):
    """Uses the stored verdict of the judge; does not apply where the judge was not asked.

    A judge on probation may only veto: a trajectory that it accepts waits in quarantine until the judge has earned
    trust and the filter runs again, or until a review. It is not imitated, since no trusted source confirms the
    success, and it is not used as a failure.
    """

    name = "judge"
    given = True

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult | None:
        """Return the stored verdict's result."""
        judged = context.judged
        if judged is None:
            return None
        if judged.passed and context.probation:
            reason = f"on probation, {context.probation}; {judged.reason}"
            return GateResult(False, reason, judged.score, route="quarantine")
        return GateResult(judged.passed, judged.reason, judged.score, judged.error_step)


class EnvironmentGate(Gate[Section]):
    """Passes trajectories without an environment failure; the others do not measure the policy and are not used."""

    name = "environment"
    sends_to = "none"

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult:
        """Pass unless the cause of the failure is a boundary other than the policy's."""
        boundary = trajectory.failure_boundary
        if is_environment_failure(boundary):
            return GateResult(False, f"{boundary} failure: {trajectory.failure_reason}")
        return GateResult(True, "the environment held")


class PeopleOptions(Section):
    """`filter.options.people`."""

    share: Share = 0.05
    """Share of trajectories in the sample."""
    wait: bool = False
    """Keep sampled trajectories in quarantine until the review. If false, they are trained on meanwhile."""


class PeopleGate(Gate[PeopleOptions]):
    """Marks sampled trajectories by a verdict; does not apply to the rest."""

    name = "people"
    sends_to = "quarantine"
    section = PeopleOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult | None:
        """Pass a sampled trajectory, unless it must wait for the review."""
        if not drawn(trajectory.trajectory_id, self.options.share):
            return None
        if self.options.wait:
            return GateResult(False, "drawn for people, and waits until one has looked")
        return GateResult(True, "drawn for people, and used meanwhile")


def drawn(trajectory_id: str, share: float) -> bool:
    """Whether a trajectory is in the sample of a share in [0, 1]: by the first 48 bits of a hash of its id."""
    number = int.from_bytes(hashlib.sha256(f"for people {trajectory_id}".encode()).digest()[:6], "big")
    return number < share * 2**48
