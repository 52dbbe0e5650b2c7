"""The gates for suspicious successes: rewards that the screens do not explain, or that came too early.

No gate proves a reward hack, so rejected trajectories wait in quarantine until a review.
"""

import json
from collections.abc import Sequence

from common.text import counted
from curation.gates.gate import Gate, GateContext, GateResult, succeeded
from schemas.action import IDLE, TERMINAL
from schemas.config.section import Count, Section, Share
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory


class EvidenceOptions(Section):
    """`filter.options.evidence`."""

    least_known: Count = 20
    """Minimum number of verified successes of the task before their usual screens are used."""
    usual: Share = 0.95
    """A success without a changed screen is suspicious if at least this share of those successes changed a screen. In
    some tasks the last click changes no pixel."""


class EvidenceGate(Gate[EvidenceOptions]):
    """Holds back successes without an action or an answer, with repeated `finished`, or without a change."""

    name = "evidence"
    rule = "3"
    sends_to = "quarantine"
    section = EvidenceOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult | None:
        """Check a success for evidence; return None for a failure."""
        if not succeeded(trajectory, context):
            return None
        types = [kind for step in steps for kind in step.types]
        ends = types.count("finished")
        idle = all(kind in (*TERMINAL, *IDLE) for kind in types)
        if ends <= 1 and idle and context.judged is None and steps and _answers(steps[-1]):
            return GateResult(True, "the question was answered")
        if idle:
            return GateResult(False, "a success in which nothing was done")
        if ends > 1:
            return GateResult(False, f"a success that ended itself {ends} times")
        task, options = context.task, self.options
        usual = task.successes >= options.least_known and task.changed >= options.usual * task.successes
        if usual and all(step.next_screenshot == step.screenshot for step in steps):
            reason = f"the screen never changed, as it did in {task.changed} of {task.successes} successes of this task"
            return GateResult(False, reason)
        return GateResult(True, "something was done")


def _answers(step: Step) -> bool:
    """Whether a step ends the trajectory with an answer, which a verifier may expect."""
    return step.types[-1:] == ["finished"] and bool(json.loads(step.actions[-1]).get("content", "").strip())


class ShortcutOptions(Section):
    """`filter.options.shortcut`."""

    least_known: Count = 20
    """Minimum number of verified successes of the task before the number of needed screens is used."""
    share: Share = 0.5
    """A success is suspicious if it has fewer screens than this share of the number that 90 % of known successes
    need."""


class ShortcutGate(Gate[ShortcutOptions]):
    """Holds back successes that are too short to be true."""

    name = "shortcut"
    rule = "2"
    sends_to = "quarantine"
    section = ShortcutOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult | None:
        """Compare a success's number of screens with the known ones; return None for a failure."""
        if not succeeded(trajectory, context):
            return None
        task, screens = context.task, len({step.screenshot for step in steps})
        if task.successes >= self.options.least_known and screens < self.options.share * task.screens:
            needed = f"nine in ten of {task.successes} successes of this task need {task.screens}"
            return GateResult(False, f"{counted(screens, 'screen')}; {needed}")
        return GateResult(True, counted(screens, "screen"))
