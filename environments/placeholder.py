"""Fill placeholders in texts: `{name}` or `{name.part}` is replaced, `{{` and `}}` are literal braces, all else is
invalid."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAMES = re.compile(r"\{([^\s{}.]+)((?:\.[^\s{}.]+)*)\}")


class NotFilled(ValueError):
    """Raised for a brace without a meaning; the message names the brace and the fix."""


def filled(text: str, values: Mapping[str, Any]) -> Any:
    """Fills in the placeholders of a text; a text of only one placeholder becomes its value.

    Args:
        text: a template.
        values: values by name; `{a.b}` is `b` of the mapping `a`.

    Raises:
        NotFilled: a placeholder has no value, or there is a single brace.
    """
    whole = _BRACES.fullmatch(text)
    if whole is not None and whole[1] is not None:
        return _value(whole[1], values)
    return _replaced(text, lambda path: str(_value(path, values)))


def blank(text: str) -> str:
    """Replaces every placeholder of a text by `{}`."""
    return _replaced(text, lambda _: "{}")


def filled_in_order(text: str, words: Sequence[object]) -> str:
    """Fills in a text in which each `{}` is the next word and `{0}` the first.

    Raises:
        NotFilled: a placeholder has another name, there are more placeholders than words, or there is a single brace.
    """
    left = iter(words)

    def word(name: str) -> str:
        if name.isdecimal() and int(name) < len(words):
            return str(words[int(name)])
        if name or (found := next(left, None)) is None:
            raise NotFilled(f"nothing is drawn for {{{name}}} in {text[:60]!r}; write {{{{{name}}}}} for the signs")
        return str(found)

    return _replaced(text, word)


def filled_code(text: str, values: Mapping[str, Any]) -> str:
    """Fills in the placeholders of code whose first name has a value; other braces belong to the code.

    Raises:
        NotFilled: a value lacks the part that a placeholder names.
    """
    return _NAMES.sub(lambda found: str(_value(found[0][1:-1], values)) if found[1] in values else found[0], text)


def _replaced(text: str, fill: Callable[[str], str]) -> str:
    def of(found: re.Match[str]) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][0]
        if found[1] is None:
            raise NotFilled(f"a single {found[0]} in {text[:60]!r} has no meaning; write {found[0] * 2} for the sign")
        return fill(found[1])

    return _BRACES.sub(of, text)


def _value(path: str, values: Mapping[str, Any]) -> Any:
    value: Any = values
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            known = ", ".join(sorted(map(str, cast(Mapping[str, Any], value)))) if isinstance(value, Mapping) else ""
            there = f"there are {known}" if known else "there is none"
            raise NotFilled(f"nothing is drawn for {{{path}}}; {there}; write {{{{{path}}}}} for the signs")
        value = cast(Mapping[str, Any], value)[name]
    return value
