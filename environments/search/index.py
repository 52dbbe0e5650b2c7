"""Index the pages of a corpus for full-text search, in an SQLite file that is built again when the corpus changes."""

import logging
import os
import re
import sqlite3
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path

from filelock import FileLock

from environments.search.corpus import Corpus
from schemas.failure import FlywheelError

BEGIN, END = "\x02", "\x03"
"""Marks around the found words in a snippet."""
VERSION = "index-2"
"""Version of the tables and the tokens of an index. Change it to build all indexes again."""
LOG_INTERVAL = 5_000
"""Number of pages after which indexing logs its progress."""
MAX_WORDS = 16
"""Maximum number of words of a query; further words are ignored."""
_RANGES = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3005, 0x3007), (0x3040, 0x30FF), (0x31F0, 0x31FF),
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F), (0xF900, 0xFAFF), (0xFF66, 0xFF9F),
    (0x20000, 0x323AF),
)  # fmt: skip
"""Characters of scripts without spaces: Thai, Lao, Burmese, Khmer, Hiragana, Katakana and Han."""
_SPACELESS = "".join(f"{chr(first)}-{chr(last)}" for first, last in _RANGES)
_RUN, _SPACED = re.compile(f"[{_SPACELESS}]+"), rf"[^\W{_SPACELESS}]"
_WORD = re.compile(f"{_RUN.pattern}|{_SPACED}+")
_MARKS = "".join(
    chr(code)
    for first, last in _RANGES
    if last < 0x2000
    for code in range(first, last + 1)
    if unicodedata.category(chr(code)) in ("Mn", "Mc")
)
"""Vowel signs and tones, which FTS5 does not count as characters of a word by itself."""
_BETWEEN = "\x1f"
"""Separates the characters of scripts without spaces in the index; the text of a page has no such character."""
_MATCHES = "SELECT rowid, key FROM pages WHERE pages MATCH ? ORDER BY bm25(pages, 0, 8, 1), key"
_PAGE = "SELECT key, title, text FROM pages WHERE rowid = ?"
_SNIPPET, _LEAD, _MAX_FOUND = 200, 40, 100
"""Characters of a snippet, characters before its first found word, and number of found words that are considered."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a search."""

    key: str
    """Id of the page."""
    title: str
    snippet: str
    """Part of the text, with the found words between `BEGIN` and `END`."""


class Index:
    """The index of a corpus.

    Args:
        corpus: the corpus.
        folder: folder of the index files.

    Raises:
        FlywheelError: the corpus has no page, or no page has text.
    """

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        state = f"{VERSION} {corpus.state}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{sha256(corpus.name.encode()).hexdigest()[:16]}.sqlite"
        with FileLock(f"{file}.lock"):
            if _state_of(file) != state:
                _build(corpus, file, state)
        self._connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, check_same_thread=False)
        self.count = int(self._connection.execute("SELECT count(*) FROM pages").fetchone()[0])
        """Number of pages."""

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def search(self, query: str, start: int, count: int, without: Collection[str] = ()) -> tuple[list[Hit], bool]:
        """Finds pages with all words of a query; with any of them if no page has all.

        Args:
            query: words, of which the first `MAX_WORDS` are used; punctuation is ignored. A word of a script without
                spaces, such as Chinese, matches within a sentence; if no page has all words, pairs of its characters
                match too.
            start: number of results to skip.
            count: maximum number of results.
            without: ids of pages to leave out.

        Returns:
            The results, best first, and whether there are more.
        """
        words = _WORD.findall(query)[:MAX_WORDS]
        pieces = [piece for word in words for piece in _pieces(word)][: 4 * MAX_WORDS]
        for joint, parts in ((" ", words), (" OR ", pieces)):
            match = joint.join(f'"{_separated(part)}"' for part in parts)
            rows = self._connection.execute(_MATCHES, (match,)) if parts else iter(())
            found = list(islice((row for row, key in rows if key not in without), start + count + 1))
            if found:
                rows = [self._connection.execute(_PAGE, (row,)).fetchone() for row in found[start : start + count]]
                hits = [
                    Hit(key, title.replace(_BETWEEN, ""), _snippet(text.replace(_BETWEEN, ""), parts))
                    for key, title, text in rows
                ]
                return hits, len(found) > start + count
        return [], False


def _separated(text: str) -> str:
    """Separates the characters of scripts without spaces, so that each is a word of the index."""
    return _RUN.sub(lambda run: f"{_BETWEEN}{_BETWEEN.join(run[0])}{_BETWEEN}", text)


def _pieces(word: str) -> list[str]:
    """Returns the pairs of adjacent characters in a longer run of a script without spaces, else the word."""
    pairs = _RUN.fullmatch(word) is not None and len(word) > 2
    return [word[at : at + 2] for at in range(len(word) - 1)] if pairs else [word]


def _pattern(word: str) -> str:
    """Returns the pattern of a word in a text; a longer word of a script with spaces also has other endings."""
    if _RUN.fullmatch(word):
        return re.escape(word)
    ending = f"{_SPACED}*" if len(word) > 3 else f"(?!{_SPACED})"
    return f"(?<!{_SPACED}){re.escape(word[: max(4, len(word) - 3)])}{ending}"


def _snippet(text: str, words: Sequence[str]) -> str:
    """Returns the part of a text with the most different found words, marked; or its beginning.

    FTS5's `snippet` takes ten seconds for a text of some megabytes.
    """
    found = re.compile("|".join(map(_pattern, words)), re.IGNORECASE)
    places = [(one.start(), one[0].casefold()) for one in islice(found.finditer(text), _MAX_FOUND)]

    def different(begin: int) -> int:
        return len({word for at, word in places if begin <= at < begin + _SNIPPET - _LEAD})

    first = max((at for at, _ in places), key=lambda at: (different(at), -at), default=0)
    lead = max(0, first - _LEAD)
    space = text.rfind(" ", max(0, lead - _LEAD), lead)
    begin = space + 1 if space >= 0 or lead < _LEAD else lead
    part = text[begin : begin + _SNIPPET]
    if len(text) > begin + _SNIPPET and (space := part.rfind(" ", _SNIPPET - _LEAD)) >= 0:
        part = part[:space]
    marked = found.sub(lambda one: f"{BEGIN}{one[0]}{END}", part)
    return f"{'... ' if begin else ''}{marked}{' ...' if begin + len(part) < len(text) else ''}"


def _state_of(file: Path) -> str:
    """Returns the state of the corpus that a finished index was built from; empty without such an index."""
    if not file.is_file():
        return ""
    try:
        found = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
        try:
            return str(found.execute("SELECT state FROM about").fetchone()[0])
        finally:
            found.close()
    except (sqlite3.Error, TypeError):
        return ""


def _build(corpus: Corpus, file: Path, state: str) -> None:
    """Writes the index to a new file, which then replaces the old one."""
    new, pages, empty = file.with_suffix(".new"), 0, 0
    new.unlink(missing_ok=True)
    made = sqlite3.connect(new)
    try:
        made.execute("CREATE TABLE about (state TEXT)")
        made.execute(
            "CREATE VIRTUAL TABLE pages USING fts5"
            f"(key UNINDEXED, title, text, tokenize=\"porter unicode61 remove_diacritics 2 tokenchars '{_MARKS}'\")"
        )
        for key in corpus.listed():
            page = corpus.page(key)
            if page is None or not (text := page.text):
                empty += 1
                continue
            made.execute("INSERT INTO pages VALUES (?, ?, ?)", (page.key, _separated(page.title), _separated(text)))
            pages += 1
            if pages % LOG_INTERVAL == 0:
                logging.getLogger(__name__).info("Indexed %d pages of %s", pages, corpus.name)
        made.execute("INSERT INTO about VALUES (?)", (state,))
        made.commit()
    finally:
        made.close()
    if not pages:
        new.unlink()
        why = f"none of its {empty} pages has text" if empty else "it has no page"
        raise FlywheelError(f"The corpus {corpus.name} cannot be searched: {why}.", "Name a corpus of HTML pages.")
    os.replace(new, file)
