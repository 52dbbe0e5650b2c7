"""The gate `thoughts`: rejects thoughts that repeat themselves or contain an action, even in successes."""

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
"""Minimum number of characters of a repetition, so that a quoted `very very very very` does not count."""
LONGEST = 1000
"""Maximum length of a detected phrase, in characters."""
_WINDOW = 6
"""Number of characters whose repetition suggests a repeated phrase: a quarter of `LEAST`, so that none is missed."""
_ACTION = re.compile(r"(?:^|\n)[^\S\n]*Action:|\b(?:start_box|end_box|start_point|end_point)\s*=|<point>")


class ThoughtOptions(Section):
    """`filter.options.thoughts`."""

    max_phrases: Count = 3
    """Maximum number of times that a phrase may occur in a row in a thought (Seed1.5-VL, arXiv 2505.07062, removes
    endless repetition from its RFT data)."""


class ThoughtsGate(Gate[ThoughtOptions]):
    """Rejects thoughts that repeat themselves, and thoughts that parse as an action."""

    name = "thoughts"
    rule = "3"
    section = ThoughtOptions

    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult:
        """Return the first such step."""
        endless = next((step.step for step in steps if repeats_itself(step.thought, self.options.max_phrases)), None)
        if endless is not None:
            return GateResult(False, f"step {endless} repeats the same text", error_step=endless)
        acting = next((step.step for step in steps if holds_call(step.thought)), None)
        if acting is not None:
            return GateResult(False, f"an action is written in the thought of step {acting}", error_step=acting)
        return GateResult(True, "no thought repeats itself")


def holds_action(thought: str) -> bool:
    """Whether a parser may find an unintended action in a thought: its label, or the words of its arguments."""
    return bool(_ACTION.search(thought))


def holds_call(thought: str) -> bool:
    """Whether a thought contains a whole parsable action; a mere mention of an action does not count."""
    return holds_action(thought) and bool(parse_reply(thought).actions)


def repeats_itself(text: str, most: int) -> bool:
    """Whether a phrase with a letter, in any script, occurs more than `most` times in a row.

    Characters are compared, with white space as one blank. A phrase of p characters occurs n times in a row if (n - 1)
    p consecutive characters each equal the character p before. Only those p are tried at which a few characters recur
    often enough.
    """
    text = " ".join(text.split()) + " "
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return any(_repeated(text, codes, size, most) for size in _distances(text, most))


def _distances(text: str, most: int) -> list[int]:
    """Return the distances between equal groups of characters that are as frequent as in a repetition."""
    last: dict[str, int] = {}
    found = Counter[int]()
    for at in range(len(text) - _WINDOW + 1):
        window = text[at : at + _WINDOW]
        if window in last:
            found[at - last[window]] += 1
        last[window] = at
    often = max(1, most - 1)  # the window across the end of a phrase does not occur after the last repetition
    return [size for size, times in found.items() if times >= often and size <= min(LONGEST, len(text) // (most + 1))]


def _repeated(text: str, codes: np.ndarray, size: int, most: int) -> bool:
    """Whether a phrase of `size` characters repeats more than `most` times."""
    breaks = np.flatnonzero(codes[size:] != codes[:-size])
    edges = np.concatenate(([-1], breaks, [len(codes) - size]))
    starts = edges[:-1][np.diff(edges) - 1 >= max(size * most, LEAST - size)] + 1
    return any(any(map(str.isalpha, text[start : start + size])) for start in starts)
