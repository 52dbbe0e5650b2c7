"""The gates for repetition: `duplicates`, `redundant` and `loops`.

`duplicates` keeps near-copies of an accepted trajectory out of training. A near-copy is still a success: it counts in
its group and in statistics, and is only not imitated.

`redundant` rejects trajectories that mostly change nothing or take detours. A few such steps are no reason to reject a
trajectory. Each step has its own finding (`curation/reflection.py`), and training imitates only the shortest path
through the screens.

`loops` rejects repetitions of the same actions on the same screens.
"""

from collections.abc import Sequence

from curation.gates.gate import Gate, GateContext, GateResult, succeeded
from curation.reflection import changed_nothing, redundant_steps
from schemas.action import TERMINAL
from schemas.config.section import Count, Section, Share, Whole
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory


class DuplicateOptions(Section):
    """`filter.options.duplicates`."""

    most_bits: Whole = 8
    """Maximum number of differing bits, of 512, between the hashes of equal screens; no more bits of their finer hashes
    (`curation.pictures.detail`) may differ either. Other colours of parts from about 20x20 pixels on make
    screens differ; those of smaller parts may not."""
    distance: Share = 0.02
    """Maximum distance of equal points in x and in y, as a share of the screen."""


class DuplicatesGate(Gate[DuplicateOptions]):
    """Rejects successes that do the same on the same screens as an accepted one with the same task and instruction."""

    name = "duplicates"
    rule = "7"
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
    keys = [(step.screenshot, step.step if set(step.types) & set(TERMINAL) else tuple(step.actions)) for step in steps]
    for size in range(1, min(LONGEST, len(keys) // 2) + 1):
        run, needed = 0, size * (max_repeats if size == 1 else max_cycles)
        for at in range(size, len(keys)):
            run = run + 1 if keys[at] == keys[at - size] else 0
            if run >= needed:
                return steps[at + 1 - size - run].step, size
    return None
