"""Makes text from outside (a model, a judge, a page) storable and readable.

A lone surrogate, half of a character that JSON's `\\ud800` can name, is no text in UTF-8: Arrow and tokenizers refuse
it. It is written out as the six characters `\\ud800`, so that nothing is lost and everything else stays as it was.
So is a NUL, as `\\x00`: databases end a text at it.
Output for a terminal has control characters that steer it written out, too (`harmless`). The module also writes a
number with its noun, and a duration, for people.

A judge, a proposer, a thinker, a maker of tasks and a trainer of others have unknown vocabularies. So everything with
the general form of a special token is broken with a zero-width space before it goes out (`broken`), and answers are
restored, so that text which a model copies from its prompt (a page's `<b>`, a field's `[null]`) equals the original.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, cast

from pydantic import AfterValidator


def storable(text: str) -> str:
    """Writes out the lone surrogates and NULs of a text."""
    text = text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text.replace("\0", "\\x00")


def storable_json(value: Any) -> Any:
    """Writes out the lone surrogates and NULs of all texts and keys of a JSON value."""
    if isinstance(value, Mapping):
        fields = cast(Mapping[str, Any], value)
        return {storable(key): storable_json(one) for key, one in fields.items()}
    if isinstance(value, list | tuple):
        return [storable_json(one) for one in cast(list[Any] | tuple[Any, ...], value)]
    return storable(value) if isinstance(value, str) else value


def strict_json(value: object, **options: Any) -> str:
    """Writes JSON; numbers that JSON does not have (NaN, infinities) are null.

    Args:
        value: objects, lists and plain values.
        options: those of `json.dumps`.
    """
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in cast(Mapping[object, object], value).items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in cast(list[object] | tuple[object, ...], value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


BYTE_ORDER_MARK = "\ufeff"
"""Mark that some editors put at the beginning of a file in UTF-8; no part of its text."""


def unmarked(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines of a file without its byte order mark."""
    first = True
    for line in lines:
        yield line.removeprefix(BYTE_ORDER_MARK) if first else line
        first = False


STEERING = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]")
"""Control characters but tab and line feed, which begin a terminal's escapes; and marks of the reading direction.

The latter make a text look like another one.
"""


CONTROL = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]")
"""Control characters that no text has."""


NO_TEXT = re.compile("[\\x00\ud800-\udfff]")
"""A NUL, which databases end a text at, and half of a character."""


def harmless(text: str) -> str:
    """Writes out all characters that would steer a terminal, such as `\\x1b`; everything else stays as it was."""
    return STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


Storable = Annotated[str, AfterValidator(storable)]
"""A field's text, made storable wherever it comes from."""


def lasting(seconds: float) -> str:
    """Writes a duration for people, such as `40 s`, `3 min` and `2 h 10 min`; to the nearest of its last unit."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def counted(number: int, one: str, many: str = "") -> str:
    """Writes a number with its noun, such as `1 task` and `1,200 tasks`; `many` where it is not `one` and an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


ZERO_WIDTH = "\u200b"
TOKEN_FORMS = (
    r"<[^\s<>\U000e01ef]{1,80}>",  # <|im_end|>, </s>, <tool_call>
    r"\[/?[A-Za-z_][A-Za-z0-9_]{1,39}\]",  # [INST], [/INST], [gMASK], [control_8]
    "\u25c1[^\\s\u25c1\u25b7\U000e01ef]{1,80}\u25b7",  # Kimi's
)
"""The general forms of special tokens."""
_STARTS = re.compile(f"(?={'|'.join(TOKEN_FORMS)}).", re.DOTALL)
_BROKEN = re.compile(rf"(?<=[<\[\u25c1]){ZERO_WIDTH}")


def broken(text: str) -> str:
    """Puts a zero-width space behind the first character of everything that may be a token."""
    return _STARTS.sub(lambda found: found[0] + ZERO_WIDTH, text)


def restored(text: str) -> str:
    """Removes the spaces that `broken` added."""
    return _BROKEN.sub("", text)
