"""The gate `environment`: rejects trajectories that ended because the environment failed."""

from collections.abc import Sequence

from curation.gates.gate import Gate, GateContext, GateResult
from schemas.config.section import Section
from schemas.failure import is_environment_failure
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory


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
