"""Define which screens of a trajectory are pictures in a prompt: the latest ones, or all since the last fold.

Rollouts, training samples and counts of tokens use this one rule. With T screens so far, the current one included, the
oldest k = max(0, ceil((T - B) / S) * S) are no pictures. B is the maximum number of pictures. A window that slides
leaves out one more screen at each step, so S = 1. Folding leaves out S screens at once (arXiv 2608.02352, appendix B),
so that prompts begin alike between two folds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ContextRule:
    """Rule for the pictures of a prompt."""

    live: int
    """B, the maximum number of pictures, at least 1."""
    fold: int = 1
    """S, the number of screens that are left out at once, at most `live`."""
    folds: bool = False
    """Whether a text replaces a screen that is left out; a sliding window removes it."""

    def folded(self, screens: int) -> int:
        """Counts the oldest of `screens` screens that are no pictures, k; `screens` includes the current one."""
        return max(0, -(-(screens - self.live) // self.fold) * self.fold)

    def shown(self, screens: int) -> int:
        """Counts the latest of `screens` screens that are pictures, from 1 to `live`."""
        return screens - self.folded(screens)

    @classmethod
    def recorded(cls, asked: Mapping[str, Any]) -> "ContextRule":
        """Reads the rule from a trajectory's settings (`PolicyConfig.asked`); those without `context` slide."""
        if asked.get("context", "slide") == "fold":
            return cls(int(asked["live_images"]), int(asked["fold_images"]), folds=True)
        return cls(int(asked["history_images"]))
