"""The gate `duplicates`: keeps near-copies of an accepted trajectory out of training.

A near-copy is still a success: it counts in its group and in statistics, and is only not imitated.
"""

from collections.abc import Sequence

from curation.gates.gate import Gate, GateContext, GateResult, succeeded
from schemas.config.section import Section, Share, Whole
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory


class DuplicateOptions(Section):
    """`filter.options.duplicates`."""

    most_bits: Whole = 8
    """Maximum number of differing bits, of 512, between the hashes of equal screens; no more bits of their finer hashes
    (`curation.pictures.detail`) may differ either."""
    distance: Share = 0.02
    """Maximum distance of equal points in x and in y, as a share of the screen."""


class DuplicatesGate(Gate[DuplicateOptions]):
    """Rejects successes that do the same on the same screens as an accepted one with the same task and instruction."""

    name = "duplicates"
    rule = "6"
    sends_to = "rl"
    section = DuplicateOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult | None:
        """Compare a success with the accepted ones; return None for a failure."""
        if not succeeded(trajectory, context) or not steps:
            return None
        options = self.options
        other = context.accepted.like(
            trajectory, steps, context.looks, options.most_bits, options.distance, context.details
        )
        if other is not None:
            return GateResult(False, f"the same as {other}, which is accepted")
        return GateResult(True, "no accepted trajectory is the same")
