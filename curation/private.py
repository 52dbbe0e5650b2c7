"""Takes secrets, and what tells who somebody is, out of a text: keys, passwords, cards, accounts, addresses, phones.

Found by form alone (`curation.forms`), so what has no form (a name, a street) is not found, and what only looks like a
secret is. Passwords that are known are found as well.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from curation.forms import FORMS

PASSWORD = "password"
NUMBERS = frozenset({"card", "account", "number of a person", "phone"})
"""Kinds that coordinates, ids and times may look like."""
YIELDS = "e-mail"
"""A password before a host, `://name:password@host`, is no address; all else takes what nothing else has taken."""
_KINDS = (*dict.fromkeys(form.kind for form in FORMS),)
_RUN = re.compile(rb"([^\0])\1*", re.DOTALL)
_WIDE = {0x3000: " "} | {0xFEE0 + one: chr(one) for one in range(0x21, 0x7F)}
"""Signs of full width, each of which stands for one of ASCII."""
_NO_WIDTH = re.compile(r"[\u00ad\u200b-\u200d\u2060\ufeff]")
LEAST = 4
"""Characters of a password that is looked for everywhere; a shorter one is in many words."""
PLAIN = 6
"""Below so many, one in small letters is a word of the language, and one of any kind stands alone where it is meant."""
_TYPED = (
    r"(?:\b(?:type|typewrite|write|fill|input_text)\(\s?|\b(?:content|text|message|value)[\"']?\s?[=:]\s?)"
    r"[\"'](?P<secret>{})(?=(?:\\n|\n)?[\"'])"
)


@dataclass(frozen=True, slots=True)
class PrivateSpan:
    """A stretch of a text: where, and what it is."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Secrets:
    """Passwords that are known, such as what was typed into a password field."""

    all: frozenset[str] = frozenset()

    @property
    def everywhere(self) -> frozenset[str]:
        """Those that are looked for in any words; the others only where they are typed."""
        return frozenset(one for one in self.all if len(one) >= LEAST and not (len(one) < PLAIN and _plain(one)))

    def within(self, text: str) -> Iterator[tuple[int, int]]:
        """Where they stand."""
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
    """What is found in a text, in order and without overlap.

    Args:
        text: any.
        secrets: passwords that are known.
        apart: stretches, in order, that hold coordinates, ids or times: a number in them is nobody's.
    """
    if text.isascii():
        return _found(text, secrets, apart)
    plain, places = _as_read(text)
    known = Secrets(frozenset(_as_read(one)[0] for one in secrets.all))
    moved = [(bisect_left(places, start), bisect_left(places, end)) for start, end in apart]
    found = _found(plain, known, moved)
    return [PrivateSpan(places[one.start], places[one.end - 1] + 1, one.kind) for one in found]


def _as_read(text: str) -> tuple[str, Sequence[int]]:
    """A text as people read it, and where each of its characters stands: letters and digits of full width are those of
    ASCII, and what has no width at all is not there."""
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
    """The text with everything that `find` finds replaced by what it was; and the kinds, one for each."""
    found = find(text, secrets, apart)
    return "".join(_pieces(text, found)), [one.kind for one in found]


def shown(kind: str) -> str:
    """What stands in the place of a secret; it is none itself."""
    return f"[redacted {kind}]"


def _pieces(text: str, found: list[PrivateSpan]) -> Iterator[str]:
    at = 0
    for one in found:
        yield text[at : one.start]
        yield shown(one.kind)
        at = one.end
    yield text[at:]
