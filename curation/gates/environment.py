"""The gate that sets apart what the environment, not the policy, ended."""

from collections.abc import Sequence

from curation.gates.gate import Gate, GateContext, GateResult
from schemas.config.section import Section
from schemas.failure import is_environment_failure
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory


class EnvironmentGate(Gate[Section]):
    """Passes what no environment failure ended; the rest says nothing about the policy and goes nowhere."""

    name = "environment"
    sends_to = "none"

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult:
        """Passes unless the failure is blamed on a boundary that is not the policy's."""
        boundary = trajectory.failure_boundary
        if is_environment_failure(boundary):
            return GateResult(False, f"{boundary} failure: {trajectory.failure_reason}")
        return GateResult(True, "the environment held")
