"""Think-aloud (in-situ annotation, UI-TARS-2, arXiv 2509.02544): speech, put to the steps it was about."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.failure import UsageError

_LINE = re.compile(r"\s*(?:(\d{1,3}):)?(\d{1,4}(?:\.\d+)?)\s+(\S.*?)\s*")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase, in seconds from the begin of the recording."""

    start_s: float
    text: str


def read_notes(text: str) -> list[Phrase]:
    """The notes in lines of `minutes:seconds words` or `seconds words`; raises UsageError, naming the line."""
    notes: list[Phrase] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            hint = "Write, for example, `0:04 the button is on the left`."
            raise UsageError(f"`notes`: line {number} does not begin with a time: {line.strip()[:60]!r}.", hint)
        minutes, seconds, words = found.groups()
        notes.append(Phrase(60 * float(minutes or 0) + float(seconds), words))
    return notes


def align(phrases: Iterable[Phrase], starts_s: Sequence[float], offset_s: float = 0.0) -> dict[int, str]:
    """What was heard at each step: while it was looked at, thought about and performed.

    Args:
        phrases: in any order.
        starts_s: when each step began, in seconds from the trajectory's begin; not decreasing.
        offset_s: when the recording began, on the same clock.

    Returns:
        The words by the step's place in `starts_s`; what was heard before the first step belongs to that one.
    """
    words: dict[int, list[str]] = {}
    for one in sorted(phrases, key=lambda one: one.start_s):
        begun = sum(start <= one.start_s + offset_s for start in starts_s)
        if starts_s:
            words.setdefault(max(0, begun - 1), []).append(one.text)
    return {place: " ".join(parts) for place, parts in sorted(words.items())}
