"""The gate of rules: what must not be imitated even if it led to success."""

from collections.abc import Sequence
from itertools import pairwise

from curation.gates.gate import Gate, GateContext, GateResult
from schemas.config.section import Count, Section
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory

PHRASE = (3, 80)
"""Characters of the shortest and the longest phrase whose repetition is noticed."""


class RuleOptions(Section):
    """`filter.options.rules`."""

    max_repeats: Count = 4
    """The same action on the same screen repeated this often is a loop."""
    max_phrases: Count = 3
    """A phrase that a thought says more often than this in a row is endless repetition (Seed1.5-VL, arXiv 2505.07062,
    cleans its RFT data of it)."""


class RulesGate(Gate[RuleOptions]):
    """Turns away unreadable actions, missing steps, thoughts that repeat themselves, and loops."""

    name = "rules"
    rule = "2"
    section = RuleOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult:
        """Passes a trajectory that breaks no rule; else names the rule, and the step where it is one step's."""
        unread = next((step.step for step in steps if step.action is None or step.action_error), None)
        if unread is not None:
            return GateResult(False, f"step {unread} holds no action that could be performed", error_step=unread)
        if len(steps) != trajectory.n_steps:
            return GateResult(False, f"{len(steps)} of {trajectory.n_steps} steps are in the lake")
        endless = next((step.step for step in steps if repeats_itself(step.thought, self.options.max_phrases)), None)
        if endless is not None:
            return GateResult(False, f"step {endless} says the same again and again", error_step=endless)
        looped = _loop(steps, self.options.max_repeats)
        if looped is not None:
            reason = f"the same action on the same screen again and again from step {looped}"
            return GateResult(False, reason, error_step=looped)
        return GateResult(True, "no rule broken")


def repeats_itself(text: str, most: int) -> bool:
    """Whether a phrase of whole words follows itself more than `most` times in a row; time linear in the text.

    A phrase of p words occurs n times in a row where (n - 1) p words in succession equal those p before them.
    """
    words = text.split()
    longest = (PHRASE[1] + 1) // 2  # words of one letter
    return any(_repeated(words, size, most) for size in range(1, min(longest, len(words) // (most + 1)) + 1))


def _repeated(words: Sequence[str], size: int, most: int) -> bool:
    run = 0
    for at in range(size, len(words)):
        run = run + 1 if words[at] == words[at - size] else 0
        if run == size * most and PHRASE[0] <= len(" ".join(words[at + 1 - size : at + 1])) <= PHRASE[1]:
            return True
    return False


def _loop(steps: Sequence[Step], most: int) -> int | None:
    """The step from which the same action was repeated `most` times on the same screen; None for no loop."""
    repeats = 0
    for before, after in pairwise(steps):
        same = (before.screenshot, before.action) == (after.screenshot, after.action)
        repeats = repeats + 1 if same else 0
        if repeats >= most:
            return after.step - repeats
    return None
