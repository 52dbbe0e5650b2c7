"""The gate of thoughts: who says the same again and again, or writes an action into a thought, is no example, even
where it led to success."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from curation.gates.gate import Gate, GateContext, GateResult
from models.families.dialects import parse_reply
from schemas.config.section import Count, Section
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory

LEAST = 24
"""Characters that a repetition fills at the least: a quoted `very very very very` is none."""
LONGEST = 1000
"""Characters of the longest phrase whose repetition is noticed."""
_WINDOW = 6
"""Characters by whose return a repetition is suspected; a quarter of `LEAST`, so that none is overlooked."""
_ACTION = re.compile(r"(?:^|\n)[^\S\n]*Action:|\b(?:start_box|end_box|start_point|end_point)\s*=|<point>")


class ThoughtOptions(Section):
    """`filter.options.thoughts`."""

    max_phrases: Count = 3
    """A phrase that a thought says more often than this in a row is endless repetition (Seed1.5-VL, arXiv 2505.07062,
    cleans its RFT data of it)."""


class ThoughtsGate(Gate[ThoughtOptions]):
    """Turns away thoughts that repeat themselves, and those in which an action is read."""

    name = "thoughts"
    rule = "3"
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
    """Whether a phrase with a letter in it follows itself more than `most` times in a row, in any script.

    Characters are compared, white space counting as one blank each: a phrase of p characters occurs n times in a row
    where (n - 1) p characters in succession equal those p before them. Only those p are tried at which some few
    characters return often enough.
    """
    text = " ".join(text.split()) + " "
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return any(_repeated(text, codes, size, most) for size in _distances(text, most))


def _distances(text: str, most: int) -> list[int]:
    """How far apart a few characters and their last occurrence are, as often as a phrase's repetition makes them."""
    last: dict[str, int] = {}
    found = Counter[int]()
    for at in range(len(text) - _WINDOW + 1):
        window = text[at : at + _WINDOW]
        if window in last:
            found[at - last[window]] += 1
        last[window] = at
    often = max(1, most - 1)  # what lies across the end of a phrase is not there after the last one
    return [size for size, times in found.items() if times >= often and size <= min(LONGEST, len(text) // (most + 1))]


def _repeated(text: str, codes: np.ndarray, size: int, most: int) -> bool:
    """Whether a phrase of so many characters does."""
    breaks = np.flatnonzero(codes[size:] != codes[:-size])
    edges = np.concatenate(([-1], breaks, [len(codes) - size]))
    starts = edges[:-1][np.diff(edges) - 1 >= max(size * most, LEAST - size)] + 1
    return any(any(map(str.isalpha, text[start : start + size])) for start in starts)
