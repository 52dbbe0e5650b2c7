"""The gate of thoughts: who says the same again and again, or writes an action into a thought, is no example, even
where it led to success."""

import re
from collections.abc import Sequence

from curation.gates.gate import Gate, GateContext, GateResult
from models.families.dialects import parse_reply
from schemas.config.section import Count, Section
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory

PHRASE = (3, 80)
"""Characters of the shortest and the longest phrase whose repetition is noticed."""
_ACTION = re.compile(r"(?:^|\n)[^\S\n]*Action:|\b(?:start_box|end_box|start_point|end_point)\s*=|<point>")


class ThoughtOptions(Section):
    """`filter.options.thoughts`."""

    max_phrases: Count = 3
    """A phrase that a thought says more often than this in a row is endless repetition (Seed1.5-VL, arXiv 2505.07062,
    cleans its RFT data of it)."""


class ThoughtsGate(Gate[ThoughtOptions]):
    """Turns away thoughts that repeat themselves, and those in which an action is read."""

    name = "thoughts"
    rule = "2"
    section = ThoughtOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult:
        """Names the first such step."""
        endless = next((step.step for step in steps if repeats_itself(step.thought, self.options.max_phrases)), None)
        if endless is not None:
            return GateResult(False, f"step {endless} says the same again and again", error_step=endless)
        acting = next((step.step for step in steps if holds_call(step.thought)), None)
        if acting is not None:
            return GateResult(False, f"an action is written in the thought of step {acting}", error_step=acting)
        return GateResult(True, "no thought repeats itself")


def holds_action(thought: str) -> bool:
    """Whether a parser may find an action in it, which nobody meant: its label, or the words of its arguments."""
    return bool(_ACTION.search(thought))


def holds_call(thought: str) -> bool:
    """Whether a whole action is read in it; one that only speaks of an action holds none."""
    return holds_action(thought) and parse_reply(thought).action is not None


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
