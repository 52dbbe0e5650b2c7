"""A gate that rejects trajectories with too many steps."""

from collections.abc import Sequence

from curation.gates.gate import Gate, GateContext, GateResult
from schemas.config.section import Count, Section
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory


class BriefOptions(Section):
    """`[filter.options.brief]`."""

    most_steps: Count = 10


class BriefGate(Gate[BriefOptions]):
    """Reject long trajectories."""

    name = "brief"
    section = BriefOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult:
        """Compare the number of steps with the limit."""
        most = self.options.most_steps
        return GateResult(len(steps) <= most, f"{len(steps)} steps, at most {most} are brief")
