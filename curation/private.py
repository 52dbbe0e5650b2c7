"""What in a text is a secret or tells who somebody is: keys, passwords, card and account numbers, addresses, phones.

Found by form alone, so what has no form (a name, a street) is not found, and what only looks like a secret is. Numbers
count where their check digits are right. Every pattern is bounded on both sides: a text of any length and content takes
a time in proportion to its length.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_START, _END = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"


@dataclass(frozen=True, slots=True)
class Found:
    """A stretch of a text: where, and what it is."""

    start: int
    end: int
    kind: str


def _card(text: str) -> int:
    """All of it, where the check digit of a card's number is right (ISO/IEC 7812-1); not one digit over and over."""
    digits = [int(one) for one in text if one.isdigit()]
    if not 13 <= len(digits) <= 19 or len(set(digits)) == 1:
        return 0
    doubled = [sum(divmod(2 * one, 10)) if at % 2 else one for at, one in enumerate(reversed(digits))]
    return 0 if sum(doubled) % 10 else len(text)


def _account(text: str) -> int:
    """Its longest beginning of whole words in which the check digits are right (ISO 13616: modulo 97)."""
    for end in (len(text), *(at for at in range(len(text) - 1, 14, -1) if text[at] == " ")):
        plain = text[:end].replace(" ", "")
        if 15 <= len(plain) <= 34 and int("".join(str(int(one, 36)) for one in plain[4:] + plain[:4])) % 97 == 1:
            return end
    return 0


def _password(word: str) -> int:
    """A word in small letters is none: `the password field` names no password."""
    plain = word.rstrip(".!?)")
    return 0 if plain.isalpha() and plain.islower() else len(word)


RULES: tuple[tuple[str, re.Pattern[str], Callable[[str], int]], ...] = (
    ("key", re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?s:.{0,8000}?)(?:-----END|\Z)"), len),
    (
        "key",
        re.compile(
            _START
            + r"(?:sk-[A-Za-z0-9_-]{16,200}|(?:gh[pousr]|glpat|npm|hf|xox[abeprs])[_-][A-Za-z0-9_-]{16,200}"
            + r"|github_pat_[A-Za-z0-9_]{20,200}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,60}"
            + r"|eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{0,2000})"
        ),
        len,
    ),
    ("key", re.compile(r"(?i:\bbearer) {1,3}([A-Za-z0-9._~+/=-]{12,2000})"), len),
    ("password", re.compile(r"://[^\s/:@]{1,100}:([^\s/:@]{1,200})@"), len),
    (
        "password",
        re.compile(
            r"(?i:\b(?:password|passwd|passphrase|passcode|pwd|api[_ -]?key|access[_ -]?token|secret[_ -]?key))\b"
            + r"(?:[\"']?(?: {0,3}[:=] {0,3}| is | to be )[\"'“]?| [\"'“])([^\s\"'”,;]{4,200})(?=[\"'”,;\s]|\Z)"
        ),
        _password,
    ),
    (
        "e-mail",
        re.compile(r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}" + _END),
        len,
    ),
    ("account", re.compile(_START + r"[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}" + _END), _account),
    ("card", re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])"), _card),
    ("number of a person", re.compile(r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])"), len),
    ("phone", re.compile(r"(?<![\w+])\+\d(?:[ ().-]{0,2}\d){7,14}(?!\d)"), len),
    ("phone", re.compile(r"(?<![\w.-])(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\d.-]?\d)"), len),
)
"""Kind, form (a group where only part of it is meant), and how many of its characters count; the first that finds a
stretch names it."""


def find(text: str) -> list[Found]:
    """What is found in a text, in order and without overlap."""
    found: list[Found] = []
    taken = bytearray(len(text))
    for kind, pattern, counts in RULES:
        for match in pattern.finditer(text):
            group = 1 if pattern.groups else 0
            start = match.start(group)
            end = start + counts(match[group])
            if end > start and not any(taken[start:end]):
                taken[start:end] = b"\1" * (end - start)
                found.append(Found(start, end, kind))
    return sorted(found, key=lambda one: one.start)


def without(text: str, secrets: frozenset[str] = frozenset()) -> tuple[str, list[str]]:
    """The text with everything that is found, and these secrets, replaced by what it was; and the kinds, one for each.

    Args:
        text: any.
        secrets: passwords that are known, such as what was typed into a password field.
    """
    kinds: list[str] = []
    for secret in sorted(secrets, key=len, reverse=True):
        if count := text.count(secret):
            text = text.replace(secret, shown("password"))
            kinds += ["password"] * count
    found = find(text)
    kinds += [one.kind for one in found]
    return "".join(_pieces(text, found)), kinds


def shown(kind: str) -> str:
    """What stands in the place of a secret; it is none itself."""
    return f"[redacted {kind}]"


def _pieces(text: str, found: list[Found]) -> Iterator[str]:
    at = 0
    for one in found:
        yield text[at : one.start]
        yield shown(one.kind)
        at = one.end
    yield text[at:]
