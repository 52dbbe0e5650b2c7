"""Whether the candidate plays next: it must not be worse than the champion on the same held-out seeds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

Plays = Mapping[tuple[str, int], bool | None]
"""Success by (task, seed); None is an environment failure, which enters no comparison."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision and its numbers."""

    promoted: bool
    difference: float
    """Mean of candidate minus champion over the plays both finished, in [-1, 1]."""
    low: float
    high: float
    """95 % interval of the difference."""
    pairs: int
    reason: str


def decide(candidate: Plays, champion: Plays, tolerance: float) -> Decision:
    """Promotes a candidate whose paired difference is at least -tolerance."""
    shared = [key for key in candidate if candidate[key] is not None and champion.get(key) is not None]
    if not shared:
        return Decision(False, 0.0, 0.0, 0.0, 0, "no play that both finished: nothing to compare")
    differences = [float(bool(candidate[key])) - float(bool(champion[key])) for key in shared]
    mean = sum(differences) / len(differences)
    variance = sum((d - mean) ** 2 for d in differences) / max(1, len(differences) - 1)
    half = 1.96 * math.sqrt(variance / len(differences))
    promoted = mean >= -tolerance
    word = "not worse" if promoted else "worse"
    reason = f"{word} than the champion on the same {len(shared)} plays: {mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"
    return Decision(promoted, mean, mean - half, mean + half, len(shared), reason)
