"""Decides whether a reply acts: whether a reader finds a call in it, even a call that is no action of this project.

If a screen has several replies, the acting reply answers it.
"""

from models.families.acting import names_call
from models.families.reading import finds_call
from models.families.thinking import split_thinking


def holds_call(reply: str) -> bool:
    """Checks in linear time whether a reply has a call after its thinking; never raises for any text."""
    answer = split_thinking(reply)[1]
    return finds_call(answer) or names_call(answer)
