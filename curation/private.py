"""Remove secrets and personal data from a text: keys, passwords, cards, accounts, addresses, phones.

The search only uses patterns (`curation.forms`) and known passwords. So it cannot find data without a pattern (a name,
a street), and it also removes text that only looks like a secret.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from curation.forms import FORMS

PASSWORD = "password"
NUMBERS = frozenset({"card", "account", "number of a person", "phone"})
"""Kinds whose text may be a coordinate, an id or a time."""
YIELDS = "e-mail"
"""Kind that yields to a password before a host, `://name:password@host`; other kinds match only text that no earlier
kind matches."""
_KINDS = (*dict.fromkeys(form.kind for form in FORMS),)
_RUN = re.compile(rb"([^\0])\1*", re.DOTALL)
_WIDE = {0x3000: " "} | {0xFEE0 + one: chr(one) for one in range(0x21, 0x7F)}
"""Full-width characters with their ASCII counterparts."""
_NO_WIDTH = re.compile(r"[\u00ad\u200b-\u200d\u2060\ufeff]")
LEAST = 4
"""Minimum length of a password that is searched everywhere; shorter passwords are part of many words."""
PLAIN = 6
"""Length below which a lower-case password counts as a plain word, and any other password is found only as a whole
word."""
_TYPED = (
    r"(?:\b(?:type|typewrite|write|fill|input_text)\(\s?|\b(?:content|text|message|value)[\"']?\s?[=:]\s?)"
    r"[\"'](?P<secret>{})(?=(?:\\n|\n)?[\"'])"
)


@dataclass(frozen=True, slots=True)
class PrivateSpan:
    """A secret stretch of a text, with its place and kind."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Secrets:
    """Known passwords, such as those typed into a password field."""

    all: frozenset[str] = frozenset()

    @property
    def everywhere(self) -> frozenset[str]:
        """Returns the passwords that are searched in any text; others are searched only where they are typed."""
        return frozenset(one for one in self.all if len(one) >= LEAST and not (len(one) < PLAIN and _plain(one)))

    def within(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the places of the passwords in a text."""
        everywhere = self.everywhere
        for secret in self.all:
            if secret not in text:
                continue
            form = re.escape(secret)
            if secret not in everywhere:
                form = _TYPED.format(form)
            elif len(secret) < PLAIN or secret.isdigit():
                form = rf"(?<![A-Za-z0-9]){form}(?![A-Za-z0-9])"
            for match in re.finditer(form, text):
                yield match.span("secret") if "secret" in match.re.groupindex else match.span()


def _plain(word: str) -> bool:
    return word.isalpha() and word.islower()


def find(text: str, secrets: Secrets = Secrets(), apart: Sequence[tuple[int, int]] = ()) -> list[PrivateSpan]:
    """Find the secrets in a text, in order and without overlap.

    Args:
        text: any text.
        secrets: known passwords.
        apart: ordered ranges with coordinates, ids or times, in which no number is personal.
    """
    if text.isascii():
        return _found(text, secrets, apart)
    plain, places = _as_read(text)
    known = Secrets(frozenset(_as_read(one)[0] for one in secrets.all))
    moved = [(bisect_left(places, start), bisect_left(places, end)) for start, end in apart]
    found = _found(plain, known, moved)
    return [PrivateSpan(places[one.start], places[one.end - 1] + 1, one.kind) for one in found]


def _as_read(text: str) -> tuple[str, Sequence[int]]:
    """Return a normalised text, with the original position of each character.

    Full-width letters and digits become ASCII, and characters without width are removed.
    """
    text = text.translate(_WIDE)
    if not _NO_WIDTH.search(text):
        return text, range(len(text))
    places = [at for at, one in enumerate(text) if not _NO_WIDTH.match(one)]
    return "".join(text[at] for at in places), places


def _found(text: str, secrets: Secrets, apart: Sequence[tuple[int, int]]) -> list[PrivateSpan]:
    held = bytearray(len(text))
    numbers = bytearray(len(text))
    for start, end in apart:
        numbers[start:end] = b"\1" * (end - start)
    for form in FORMS:
        group, number = "secret" if "secret" in form.pattern.groupindex else 0, _KINDS.index(form.kind) + 1
        for match in form.pattern.finditer(text):
            start = match.start(group)
            end = start + form.counts(match[group])
            stretch = held[start:end]
            if (form.kind in NUMBERS and 0 not in numbers[start:end]) or (form.kind == YIELDS and any(stretch)):
                continue
            held[start:end] = stretch.replace(b"\0", bytes([number]))
    for start, end in secrets.within(text):
        if 0 in held[start:end] and (0 in numbers[start:end] or not text[start:end].isdigit()):
            held[start:end] = bytes([_KINDS.index(PASSWORD) + 1]) * (end - start)
    return [PrivateSpan(*run.span(), _KINDS[run[0][0] - 1]) for run in _RUN.finditer(held)]


def without(
    text: str,
    secrets: Secrets = Secrets(),
    apart: Sequence[tuple[int, int]] = (),
) -> tuple[str, list[str]]:
    """Replace everything that `find` finds by its kind; return the text and the kind of each replacement."""
    found = find(text, secrets, apart)
    return "".join(_pieces(text, found)), [one.kind for one in found]


def placeholder(kind: str) -> str:
    """Return the placeholder for a secret of a kind, which does not look like a secret."""
    return f"[redacted {kind}]"


def _pieces(text: str, found: list[PrivateSpan]) -> Iterator[str]:
    at = 0
    for one in found:
        yield text[at : one.start]
        yield placeholder(one.kind)
        at = one.end
    yield text[at:]
