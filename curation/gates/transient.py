"""The gate `transient`: rejects screens that were captured while they changed, or before they had content.

An action on an unreadable screen does not teach a policy to read screens, and the change of a screen that was still
changing is not the action's effect.
"""

from collections.abc import Sequence
from itertools import pairwise

from curation.gates.gate import Gate, GateContext, GateResult
from schemas.action import IDLE, TERMINAL
from schemas.config.section import Count, Section, Whole
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory


class TransientOptions(Section):
    """`filter.options.transient`."""

    most_bits: Whole = 8
    """Maximum number of differing bits, of 512, between the hashes of equal screens. It ignores a blinking cursor."""
    blank_bits: Count = 8
    """Maximum number of edges, of 512 possible ones, of a screen that may be blank or still loading."""
    blank_cells: Count = 7
    """Maximum size in cells of 12 pixels of the box around all content of a blank screen. A spinner or `Loading...` is
    40 to 70 pixels wide; the content of any usable page is wider than 84. At 1280x720 a line of menus takes 12."""


class TransientGate(Gate[TransientOptions]):
    """Rejects actions on blank or loading screens, and on screens that changed after they were captured."""

    name = "transient"
    rule = "4"
    section = TransientOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult:
        """Return the first such step; waiting on such a screen is no fault."""
        acted = [step for step in steps if not step.actions or not set(step.types) <= {*TERMINAL, *IDLE}]
        blank = next((step.step for step in acted if self._blank(step, context)), None)
        if blank is not None:
            return GateResult(False, f"step {blank} acts on a blank screen", error_step=blank)
        for before, after in pairwise(steps):
            follows = after.step == before.step + 1  # else a reply without an action has seen the screen between them
            if follows and after in acted and self._went_on(before, after, context):
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
        """Whether the screen after a step differs from the screen of the next step."""
        if before.next_screenshot is None or before.next_screenshot == after.screenshot:
            return False
        looks = context.looks.get(before.next_screenshot), context.looks.get(after.screenshot)
        if looks[0] is None or looks[1] is None:
            return True
        return (looks[0] ^ looks[1]).bit_count() > self.options.most_bits
