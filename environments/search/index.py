"""Index the pages of a corpus for full-text search, in an SQLite file that is built once for each state of a corpus."""

import logging
import os
import re
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path

from filelock import FileLock

from environments.search.corpus import Corpus
from schemas.failure import FlywheelError

BEGIN, END = "\x02", "\x03"
"""Marks around the found words in a snippet."""
LAYOUT = "index-1"
"""Changes when the tables or the tokens of an index change."""
LOGGED = 5_000
"""Number of indexed pages after which a line of the log counts them."""
MOST_WORDS = 16
"""Words of a query that are used."""
_WORD = re.compile(r"\w+")
_FOUND = f"""SELECT key, title, snippet(pages, 2, '{BEGIN}', '{END}', ' ... ', 24) FROM pages WHERE pages MATCH ?
  ORDER BY bm25(pages, 0, 8, 1), key"""


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
        state = f"{LAYOUT} {corpus.state}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{sha256(corpus.name.encode()).hexdigest()[:16]}.sqlite"
        with FileLock(f"{file}.lock"):
            if _state_of(file) != state:
                _build(corpus, file, state)
        self._found = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, check_same_thread=False)
        self.count = int(self._found.execute("SELECT count(*) FROM pages").fetchone()[0])
        """Number of pages."""

    def close(self) -> None:
        """Closes the file."""
        self._found.close()

    def search(self, query: str, start: int, count: int, without: Collection[str] = ()) -> tuple[list[Hit], bool]:
        """Finds pages with all words of a query; with any of them if no page has all.

        Args:
            query: words, of which the first `MOST_WORDS` are used; signs are ignored.
            start: number of results to skip.
            count: maximum number of results.
            without: ids of pages to leave out.

        Returns:
            The results, best first, and whether there are more.
        """
        words = [f'"{word}"' for word in _WORD.findall(query)[:MOST_WORDS]]
        for joint in (" ", " OR "):
            rows = self._found.execute(_FOUND, (joint.join(words),)) if words else iter(())
            hits = list(islice((Hit(*row) for row in rows if row[0] not in without), start + count + 1))
            if hits:
                return hits[start : start + count], len(hits) > start + count
        return [], False


def _state_of(file: Path) -> str:
    """Returns the state of the corpus of a whole index; empty without one."""
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
    """Writes an index to a file of its own, which then replaces the old one."""
    new, pages, empty = file.with_suffix(".new"), 0, 0
    new.unlink(missing_ok=True)
    made = sqlite3.connect(new)
    try:
        made.execute("CREATE TABLE about (state TEXT)")
        made.execute(
            "CREATE VIRTUAL TABLE pages USING fts5"
            "(key UNINDEXED, title, text, tokenize='porter unicode61 remove_diacritics 2')"
        )
        for key in corpus.listed():
            page = corpus.page(key)
            if page is None or not page.text:
                empty += 1
                continue
            made.execute("INSERT INTO pages VALUES (?, ?, ?)", (page.key, page.title, page.text))
            pages += 1
            if pages % LOGGED == 0:
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
