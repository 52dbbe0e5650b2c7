"""Counts served models' tokens for this process's requests, by config section, for stages and budgets.

Every request of the one client (`models.serving.openai`) is metered, even if its answer is unusable. A judge or
proposer that calls its model in another way calls `charge` itself.
"""

from collections import Counter
from threading import Lock

_lock = Lock()
_charged = Counter[str]()


def charge(who: str, tokens: int) -> None:
    """Adds tokens that a server read and wrote to a section's count.

    Args:
        who: the config section that names the model: `judge`, `think`, `reflect` or `policy`.
        tokens: tokens of one request.
    """
    with _lock:
        _charged[who] += tokens


def charged() -> Counter[str]:
    """Returns all counts so far, by section."""
    with _lock:
        return _charged.copy()


def charged_since(before: Counter[str]) -> Counter[str]:
    """Returns the difference to an earlier `charged`, without sections whose count did not change."""
    return charged() - before
