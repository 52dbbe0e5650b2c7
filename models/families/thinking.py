"""Splits a reply into what was thought and what was answered: one rule for every family.

Everything up to the last end of thinking is thinking, whether its beginning stands in the reply or in the prompt (a
template that opens it), and a reply that begins to think and never ends is nothing but thinking. So no draft of an
action is performed, and none of it is lost from the thought. Where the only end of thinking is part of a text that the
reply's action types, nothing was thought.
"""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from models.families.outside import unmarked
from models.families.reading import Reading

_NAME = r"(?:\w+:)?think\w*\s*"
_END = re.compile(rf"<\s*/{_NAME}>|◁/{_NAME}▷|\[/THINK\]", re.IGNORECASE)
"""`</think>`, `</thinking>`, `</thinkt>`, `</think_never_used_...>`, `</seed:think>`; Kimi's and Mistral's."""
_BEGIN = re.compile(rf"<{_NAME}>|◁{_NAME}▷|\[THINK\]", re.IGNORECASE)
_TAG = re.compile(f"{_BEGIN.pattern}|{_END.pattern}", re.IGNORECASE)
OPEN, CLOSE = "<think>", "</think>"


def split_thinking(text: str) -> tuple[str, str]:
    """Split a reply after its last end of thinking.

    Returns:
        The thinking without its tags (empty where there is none), and the answer; both with their white space.
    """
    ends = deque(_END.finditer(text), maxlen=1)
    if not ends:
        return "", text
    return _TAG.sub("", text[: ends[0].start()]), text[ends[0].end() :]


def untagged(text: str) -> str:
    """Remove all tags of thinking."""
    return _TAG.sub("", text).strip()


def read_reply(text: str, read: Callable[[str], Reading]) -> Reading:
    """Read a whole reply: its thinking by the rule above, its answer by the grammar of a family.

    Args:
        text: the reply.
        read: reads an answer; what it calls the thought is all that stands before the action.

    Returns:
        The reading. Its thought is what the answer says before its action, else the thinking; both where the grammar
        has thoughts between tags.
    """
    thinking, answer = split_thinking(text)
    found = read(answer)
    if not found.actions and len(answer) < len(text) and (typed := _typed(text, len(text) - len(answer), read)):
        (thinking, answer), found = ("", text), typed
    begun = _BEGIN.search(answer)
    if begun and (not found.actions or begun.start() < answer.rfind(found.text)):
        return Reading(untagged(text), "", error=f"the reply ends inside its thinking: {answer[-80:]!r}")
    if not answer.strip() and thinking:
        return Reading("", "", error=f"nothing follows the thinking: {text[-80:]!r}")
    if found.tagged:
        return replace(found, thought=(thinking + found.thought).strip())
    held = found.actions or found.text != answer.strip()  # else the answer is words alone, of which nothing is read
    return replace(found, thought=found.thought or (thinking.strip() if held else ""))


def _typed(text: str, end: int, read: Callable[[str], Reading]) -> Reading | None:
    """The reading of a reply whose only end of thinking, up to `end`, is part of what its action types or writes."""
    found = read(text)
    tags = [tag[0] for tag in islice(_END.finditer(text), 2)]
    begin = text.rfind(found.text)
    if len(tags) != 1 or not found.actions or not begin < end < begin + len(found.text):
        return None
    action = found.actions[min(found.parts, len(found.actions)) - 1]
    return found if any(tags[0] in str(value) for value in action.model_dump().values()) else None


def drafted(thought: str, draft: re.Pattern[str]) -> tuple[str, str]:
    """Separate a thought that holds a draft of an action from one that may stand in a reply as it is.

    Args:
        thought: the thought.
        draft: what the family's grammar takes for the beginning of an action.

    Returns:
        What the reply begins with (the thought between tags, or nothing), and the thought in the reply's own place.
    """
    return (f"{OPEN}\n{thought}\n{CLOSE}\n", "") if draft.search(unmarked(thought)) else ("", thought)
