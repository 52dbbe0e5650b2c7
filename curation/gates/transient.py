"""The gate of screens that were caught in between: while they changed, or before anything was on them.

What was done on a screen that nobody could read is no example of how to read screens, and what follows a screen that
went on changing is not what the action did.
"""

from collections.abc import Sequence
from itertools import pairwise

from curation.gates.gate import Gate, GateContext, GateResult
from schemas.action import TERMINAL
from schemas.config.section import Count, Section, Whole
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory


class TransientOptions(Section):
    """`filter.options.transient`."""

    most_bits: Whole = 8
    """Two screens whose hashes differ in more of their 512 bits are not the same: a blinking cursor is no change."""
    blank_bits: Count = 8
    """A screen with at most so many edges, of 512 places where there could be one, may be blank or still loading."""
    blank_cells: Count = 7
    """It is, if all that is on it lies in a box of so many cells of 12 pixels: what turns or says `Loading...` is 40
    to 70 pixels wide, and no page that is worked on as small as 84. At 1280x720 a line of menus takes 12."""


class TransientGate(Gate[TransientOptions]):
    """Turns away actions on blank or loading screens, and on screens that changed after they were taken."""

    name = "transient"
    rule = "3"
    section = TransientOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult:
        """Names the first such step; waiting is what one does there, and no fault."""
        acted = [step for step in steps if step.action_type not in (*TERMINAL, "wait")]
        blank = next((step.step for step in acted if self._blank(step, context)), None)
        if blank is not None:
            return GateResult(False, f"step {blank} acts on a blank screen", error_step=blank)
        for before, after in pairwise(steps):
            if after in acted and self._went_on(before, after, context):
                reason = f"the screen went on changing between steps {before.step} and {after.step}"
                return GateResult(False, reason, error_step=after.step)
        return GateResult(True, "every screen stood still")

    def _blank(self, step: Step, context: GateContext) -> bool:
        look = context.looks.get(step.screenshot)
        if look is None or look.bit_count() > self.options.blank_bits:
            return False
        near = context.details(step.screenshot)
        return near is None or not near.finer or near.spread <= self.options.blank_cells

    def _went_on(self, before: Step, after: Step, context: GateContext) -> bool:
        """Whether the screen after a step is another than the one that the next step saw."""
        if before.next_screenshot is None or before.next_screenshot == after.screenshot:
            return False
        looks = context.looks.get(before.next_screenshot), context.looks.get(after.screenshot)
        if looks[0] is None or looks[1] is None:
            return True
        return (looks[0] ^ looks[1]).bit_count() > self.options.most_bits
