"""The gate of near-duplicates: what an accepted trajectory has already taught is not taught again.

It stays a success: it counts in its group and in the statistics, and is only not imitated.
"""

from collections.abc import Sequence

from curation.gates.gate import Gate, GateContext, GateResult, succeeded
from schemas.config.section import Section, Share, Whole
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory


class DuplicateOptions(Section):
    """`filter.options.duplicates`."""

    most_bits: Whole = 8
    """Two screens whose hashes differ in at most so many of their 512 bits are one, if no more bits
    of their closer looks (`curation.pictures.detail`) differ."""
    distance: Share = 0.02
    """Of the screen: two points that are no further apart in x and y are one."""


class DuplicatesGate(Gate[DuplicateOptions]):
    """Turns away successes that do the same on the same screens as an accepted one that was asked the same."""

    name = "duplicates"
    rule = "5"
    sends_to = "rl"
    section = DuplicateOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult | None:
        """Has nothing to say of failures."""
        if not succeeded(trajectory, context) or not steps:
            return None
        options = self.options
        other = context.accepted.like(
            trajectory, steps, context.looks, options.most_bits, options.distance, context.details
        )
        if other is not None:
            return GateResult(False, f"the same as {other}, which is accepted")
        return GateResult(True, "no accepted trajectory is the same")
