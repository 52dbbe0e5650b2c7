"""The gate `loops`: rejects repetitions of the same actions on the same screens."""

from collections.abc import Sequence

from curation.gates.gate import Gate, GateContext, GateResult
from schemas.action import TERMINAL
from schemas.config.section import Count, Section
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory

LONGEST = 8
"""Maximum number of steps of a detected cycle."""


class LoopOptions(Section):
    """`filter.options.loops`."""

    max_repeats: Count = 4
    """Number of repeats of the same action on the same screen that make a loop."""
    max_cycles: Count = 2
    """Number of repeats of two to eight steps, actions and screens, that make a loop."""


class LoopsGate(Gate[LoopOptions]):
    """Rejects loops, even in successes, so that no policy imitates them."""

    name = "loops"
    rule = "2"
    section = LoopOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult:
        """Return the step at which the first loop begins."""
        found = loop_of(steps, self.options.max_repeats, self.options.max_cycles)
        if found is None:
            return GateResult(True, "no loop")
        start, size = found
        what = "the same action on the same screen" if size == 1 else f"the same {size} steps"
        return GateResult(False, f"{what} again and again from step {start}", error_step=start)


def loop_of(steps: Sequence[Step], max_repeats: int, max_cycles: int) -> tuple[int, int] | None:
    """Return the first step and the number of steps of the shortest cycle that repeats too often; None if there is
    none.

    A cycle of p steps is repeated n times if n p consecutive steps each equal the step p before. Repeated terminal
    actions are no cycle: if the environment accepted the end, the trajectory is a suspicious success.
    """
    keys = [(step.screenshot, step.step if step.action_type in TERMINAL else step.action) for step in steps]
    for size in range(1, min(LONGEST, len(keys) // 2) + 1):
        run, needed = 0, size * (max_repeats if size == 1 else max_cycles)
        for at in range(size, len(keys)):
            run = run + 1 if keys[at] == keys[at - size] else 0
            if run >= needed:
                return steps[at + 1 - size - run].step, size
    return None
