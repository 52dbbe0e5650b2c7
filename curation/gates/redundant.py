"""The gate `redundant`: rejects trajectories that mostly change nothing or take detours.

A few such steps are no reason to reject a trajectory. Each step has its own finding (`curation/reflections.py`), and
training imitates only the shortest path through the screens.
"""

from collections.abc import Sequence

from curation.gates.gate import Gate, GateContext, GateResult
from curation.reflections import changed_nothing, redundant_steps
from schemas.config.section import Count, Section, Share
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory


class RedundantOptions(Section):
    """`filter.options.redundant`."""

    max_run: Count = 4
    """Maximum number of consecutive actions that change nothing; with more the policy is stuck."""
    max_share: Share = 0.8
    """Maximum share of redundant steps."""
    least_steps: Count = 10
    """Minimum steps of a trajectory to which `max_share` applies, because a short one with a detour stays short."""


class RedundantGate(Gate[RedundantOptions]):
    """Rejects trajectories that are stuck or mostly redundant."""

    name = "redundant"
    rule = "2"
    section = RedundantOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult:
        """Return the step from which on nothing changed."""
        run: list[Step] = []
        for step in steps[:-1]:
            run = [*run, step] if changed_nothing(step) else []
            if len(run) > self.options.max_run:
                start = run[0].step
                return GateResult(False, f"{len(run)} actions in a row change nothing, from step {start}", None, start)
        redundant = len(redundant_steps(trajectory, steps))
        if len(steps) >= self.options.least_steps and redundant > self.options.max_share * len(steps):
            return GateResult(False, f"{redundant} of {len(steps)} steps are redundant")
        return GateResult(True, f"{redundant} of {len(steps)} steps are redundant")
