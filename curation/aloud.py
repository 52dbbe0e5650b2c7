"""Think-aloud (in-situ annotation, UI-TARS-2, arXiv 2509.02544): assigns speech to steps."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.failure import UsageError

_LINE = re.compile(r"\s*(?:(\d{1,3}):)?(\d{1,4}(?:\.\d+)?)\s+(\S.*?)\s*")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase, in seconds from the start of the recording."""

    start_s: float
    text: str


def read_notes(text: str) -> list[Phrase]:
    """Parse notes in lines of `minutes:seconds words` or `seconds words`; raise UsageError with the line's number."""
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
    """Assign phrases to steps: each step gets the speech from its start to the next step's start.

    Args:
        phrases: phrases in any order.
        starts_s: start of each step in seconds from the trajectory's start; not decreasing.
        offset_s: start of the recording, on the same clock.

    Returns:
        Words by the step's index in `starts_s`; speech before the first step belongs to the first step.
    """
    words: dict[int, list[str]] = {}
    for one in sorted(phrases, key=lambda one: one.start_s):
        begun = sum(start <= one.start_s + offset_s for start in starts_s)
        if starts_s:
            words.setdefault(max(0, begun - 1), []).append(one.text)
    return {place: " ".join(parts) for place, parts in sorted(words.items())}
