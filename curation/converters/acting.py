"""Whether a reply acts: whether a reader of calls finds one in it, of an action of ours or of another.

Of several replies to one screen the one that acts answers it, also where its call is no action of ours. What no reader
here takes for a call is words: a plan, an answer, a mention of a call, and calls in notations of other agents.
"""

import json
import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from curation.converters.files import fields_of, items_of
from models.families.code.calls import is_known, is_unset, parse
from models.families.reading import finds_call
from models.families.thinking import split_thinking
from schemas.action import TYPES

_MOST = 32
"""Maximum objects of a reply that are considered, its first and its last ones, so that reading takes linear time."""
_NAMED = r"[^\W\d][\w.]{0,98}\("
_MARKED = re.compile(
    rf"^[^\w\n]*+Action[*_]*+[:：][*_]*+\s*+(?:`{{1,3}}(?:\w+\n)?+\s*+)?{_NAMED}"
    rf"|<(?:tool_call|action)>\s*+(?:`{{1,3}}\w*+\s*+)?(?:[\[{{]|<function\b|{_NAMED}|[\w./-]{{1,99}}\s*+<arg_key>)"
    rf"|<function(?:_\w{{1,80}})?(?:=|\s++name=)[\"']?[\w.-]{{1,99}}[\"']?\s*+>|<\|begin_of_box\|>\s*+{_NAMED}",
    re.MULTILINE | re.IGNORECASE,
)
"""A call behind the label of UI-TARS, or within the tags of Qwen, Hermes, GLM, ScaleCUA and UI-TARS-2."""
_OBJECT = re.compile(r"\{\s*+\"[\w ]+\"\s*+:")
_ARGUMENTS = ("arguments", "parameters")
_DECODER = json.JSONDecoder(strict=False)


def holds_call(reply: str) -> bool:
    """Checks whether a reply holds a call behind its thinking; in linear time, and never raising for any text."""
    answer = split_thinking(reply)[1]
    if finds_call(answer) or _MARKED.search(answer):
        return True
    return any(map(is_known, parse(answer)[0])) or any(_objects(answer))


def _objects(text: str) -> Iterator[bool]:
    """Yields of each object of JSON whether it is a call; objects within another are a part of that."""
    found, end = _OBJECT.finditer(text), 0
    for begin in (*islice(found, _MOST // 2), *deque(found, maxlen=_MOST // 2)):
        if begin.start() < end:
            continue
        try:
            value, end = _DECODER.raw_decode(text, begin.start())
            yield _is_call(value)
        except (ValueError, RecursionError):
            continue


def _is_call(fields: dict[str, Any]) -> bool:
    """Checks whether an object is a call as families and OpenAI's protocol write it, or an action as lakes store it."""
    if any(_names(fields.get(name)) for name in ("action", "action_type")):
        return True
    if isinstance(fields.get("name"), str) and any(isinstance(fields.get(name), str | dict) for name in _ARGUMENTS):
        return True
    held = [fields_of(one) for one in items_of(fields.get("tool_calls")) or []]
    return fields.get("type") in TYPES if isinstance(fields.get("type"), str) else any(map(_is_call, held))


def _names(value: object) -> bool:
    """Checks whether a value names an action: it is a text or an object, and not one that means none."""
    if isinstance(value, str):
        return not is_unset(value) and value.strip().lower() not in ("n/a", "no", "nothing")
    return bool(fields_of(value))
