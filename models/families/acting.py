"""Finds calls that are no actions of this project: of other families, of OpenAI's protocol, as code or as objects.

Everything else counts as words: a plan, an answer, a mention of a call, and calls in unknown notations.
"""

import json
import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from models.families.code.calls import Call, NoAction, arguments, is_known, is_unset, parse
from schemas.action import TYPES

LANGUAGES = "python|py|json|code|text|xml"
"""Words behind a fence that models write around a reply or a call, as alternatives of a pattern."""
_MOST = 32
"""Maximum objects that are considered in a reply, from its beginning and its end, so that reading takes linear time."""
_NAMED = r"[^\W\d][\w.]{0,98}\("
_MARKED = re.compile(
    rf"^[^\w\n]*+Action[*_]*+[:：][*_]*+\s*+(?:`{{1,3}}(?:\w+\n)?+\s*+)?"
    rf"(?:(?:{'|'.join(TYPES)})\(|{_NAMED}(?![^\W\d]\w*+\)))"
    rf"|<(?:tool_call|action)>\s*+(?:`{{1,3}}\w*+\s*+)?(?:[\[{{]|<function\b|{_NAMED}|[\w./-]{{1,99}}\s*+<arg_key>)"
    rf"|<function(?:_\w{{1,80}})?(?:=|\s++name=)[\"']?[\w.-]{{1,99}}[\"']?\s*+>|<\|begin_of_box\|>\s*+{_NAMED}"
    rf"|^[^\S\n]*+(?:[\w :]{{1,80}}:[^\S\n]*+)?(?:pyautogui|computer)\.{_NAMED}"
    rf"|(?:^|\t)[ ]*+action:[ ]*+(?-i:CLICK|TYPE|COMPLETE|WAIT|AWAKE|INFO|ABORT|SLIDE|LONGPRESS)\b"
    rf"|(?:```(?:(?:{LANGUAGES})\b)?|<action>)\s*+(?-i:DONE|FAIL|WAIT)(?:\([\d.]*+\))?\s*+(?:```|</action>|\Z)",
    re.MULTILINE | re.IGNORECASE,
)
"""A call behind UI-TARS's label (`file(s)` is a word), in the tags of Qwen, Hermes, GLM, ScaleCUA and UI-TARS-2, in a
field of Step-GUI, or in a line of code, also within a block or behind other code."""
_TYPES = TYPES.keys() - {"note", "tool"}
"""Types of action that are not also usual types of other objects."""
_OBJECT = re.compile(r"\{\s*+\"[\w ]+\"\s*+:")
_NONE = re.compile(r"\W*+(?:(?:none|null|no|nothing|n/?a|not applicable)\b|\Z)", re.IGNORECASE)
_DECODER = json.JSONDecoder(strict=False)


def names_call(text: str) -> bool:
    """Checks in linear time whether a text without thinking has such a call; never raises for any text."""
    return bool(_MARKED.search(text)) or any(map(_is_performed, parse(text)[0])) or any(_objects(text))


def _is_performed(call: Call) -> bool:
    """Checks whether code calls a function of the grammar: of a module, or with its arguments; `DONE` may be a word."""
    if not is_known(call) or call.module:
        return is_known(call)
    if call.function.isupper():
        return False
    try:
        arguments(call)
    except NoAction:
        return False
    return True


def _objects(text: str) -> Iterator[bool]:
    """Yields whether each JSON object is a call; nested objects are part of the outer object."""
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
    if (
        any(_names(fields.get(name)) for name in ("action", "action_type", "tool_name"))
        or str(fields.get("type")) in _TYPES
    ):
        return True
    if isinstance(fields.get("coordinate"), list):  # MAI-UI's answer
        return True
    if isinstance(fields.get("name"), str) and any(
        _is_object(fields.get(name)) for name in ("arguments", "parameters")
    ):
        return True
    listed = fields.get("tool_calls")
    held = [
        fields.get("function"),
        fields.get("tool_call"),
        *(cast(list[object], listed) if isinstance(listed, list) else []),
    ]
    return any(_is_call(cast(dict[str, Any], one)) for one in held if isinstance(one, dict) and one)


def _names(value: object) -> bool:
    """Checks whether a value names an action: it must be a text or an object other than those for no action."""
    if isinstance(value, str):
        return not is_unset(value) and not _NONE.match(value)
    return isinstance(value, dict) and bool(value)


def _is_object(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, str) and (not value.strip() or value.lstrip()[0] == "{"))
