"""Makes text from outside (a model, a judge, a page) storable and readable.

A lone surrogate is half of a character; JSON can contain it, as `\\ud800`, but UTF-8 cannot, and Arrow and tokenizers
refuse it. `storable` replaces it by the six characters `\\ud800`, and a NUL by `\\x00`, because databases end a text at
a NUL. Other characters do not change. `harmless` replaces control characters that steer a terminal.

Models of judges, proposers, thinkers and makers, and other projects' trainers, have unknown special tokens. `broken`
therefore inserts a zero-width space into everything that looks like a special token, before text goes to them.
`restored` removes these spaces from their answers, so that text copied from a prompt, such as `<b>`, equals the
original.

`counted`, `some_of` and `lasting` format numbers and durations for messages. `plain` and `same_words` compare short
answers.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, cast


def storable(text: str) -> str:
    """Replaces lone surrogates and NULs by escape sequences, such as `\\ud800`."""
    text = text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text.replace("\0", "\\x00")


def storable_json(value: Any) -> Any:
    """Replaces lone surrogates and NULs by escape sequences, in all texts and keys of a JSON value."""
    return mapped_json(value, lambda one: storable(one) if isinstance(one, str) else one)


def strict_json(value: object, **options: Any) -> str:
    """Returns JSON in which NaN and infinities are null, because JSON lacks these numbers.

    Args:
        value: objects, lists and plain values.
        options: options of `json.dumps`.
    """
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        finite = mapped_json(value, lambda one: None if isinstance(one, float) and not math.isfinite(one) else one)
        return json.dumps(finite, allow_nan=False, **options)


def mapped_json(value: Any, change: Callable[[Any], Any]) -> Any:
    """Changes all plain values and keys of a JSON value."""
    if isinstance(value, Mapping):
        return {change(key): mapped_json(one, change) for key, one in cast(Mapping[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [mapped_json(one, change) for one in cast(list[Any] | tuple[Any, ...], value)]
    return change(value)


BYTE_ORDER_MARK = "\ufeff"
"""Mark that some editors write at the beginning of a UTF-8 file. It is not part of the text."""


def unmarked(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines of a file without the byte order mark."""
    first = True
    for line in lines:
        yield line.removeprefix(BYTE_ORDER_MARK) if first else line
        first = False


STEERING = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]")
"""Control characters except tab and line feed, because they start escape sequences of a terminal; and direction marks,
because they make a text look like another text."""


CONTROL = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]")
"""Control characters that stored texts must not have."""


NO_TEXT = re.compile("[\\x00\ud800-\udfff]")
"""NULs and lone surrogates."""


def harmless(text: str) -> str:
    """Replaces characters that steer a terminal by escape sequences, such as `\\x1b`. Other characters do not
    change."""
    return STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class _AfterValidator:
    """Validates as pydantic's `AfterValidator(storable)`, and imports pydantic only when a model is built."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core.core_schema import no_info_after_validator_function

        return no_info_after_validator_function(storable, handler(source))


Storable = Annotated[str, _AfterValidator()]
"""Text of a field, made storable by validation."""


def lasting(seconds: float) -> str:
    """Formats a duration, such as `40 s`, `3 min` and `2 h 10 min`, rounded to its last unit."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


UNDECODED = re.compile("\ufffd+")


def legible(text: str) -> str:
    """Replaces each run of U+FFFD, which stands for bytes that are no UTF-8, by its length in words."""
    return UNDECODED.sub(lambda found: f"[{counted(len(found[0]), 'undecodable character')}]", text)


def counted(number: int, one: str, many: str = "") -> str:
    """Formats a number with its noun, such as `1 task` and `1,200 tasks`. `many` is an irregular plural."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


ZERO_WIDTH = "\u200b"
TOKEN_FORMS = (
    r"<[^\s<>\U000e01ef]{1,80}>",  # <|im_end|>, </s>, <tool_call>
    r"\[/?[A-Za-z_][A-Za-z0-9_]{1,39}\]",  # [INST], [/INST], [gMASK], [control_8]
    "\u25c1[^\\s\u25c1\u25b7\U000e01ef]{1,80}\u25b7",  # Kimi's
)
"""Patterns that most special tokens match."""
_STARTS = re.compile(f"(?={'|'.join(TOKEN_FORMS)}).", re.DOTALL)
_BROKEN = re.compile(rf"(?<=[<\[\u25c1]){ZERO_WIDTH}")


def some_of(names: Sequence[str], most: int = 8) -> str:
    """Lists the first names and the number of the others, such as `a, b and 3 more`.

    Args:
        names: all names, at least one.
        most: maximum number of listed names.
    """
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left:,} more" if left > 0 else "")


def broken(text: str) -> str:
    """Inserts a zero-width space after the first character of everything that may be a special token."""
    return _STARTS.sub(lambda found: found[0] + ZERO_WIDTH, text)


def restored(text: str) -> str:
    """Removes the zero-width spaces that `broken` inserted."""
    return _BROKEN.sub("", text)


def plain(text: str) -> str:
    """Normalises a text: NFKC, lower case, no leading article, no surrounding punctuation, single spaces."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = folded.strip(" \t\r\n.,;:!?\"'`*()“”‘’«»").split()
    return " ".join(words[1:] if len(words) > 1 and words[0] in ("the", "a", "an") else words)


def same_words(one: str, other: str) -> bool:
    """Checks whether two answers are equal, apart from case, a leading article and surrounding punctuation."""
    return plain(one) == plain(other)
