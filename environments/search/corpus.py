"""Read a corpus of linked pages: the generated encyclopedia, a folder of HTML files, or a ZIM file.

A page's id is its path within the corpus. The id of a generated page is its title.
"""

import mimetypes
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from environments.search.encyclopedia import VERSION, Encyclopedia, article_of
from schemas.failure import FlywheelError

SUFFIXES = (".html", ".htm", ".xhtml")
_SKIPPED = ("script", "style", "template", "noscript", "title")
_INLINE = frozenset((
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "em", "i", "kbd", "mark", "q", "small", "span",
    "strong", "sub", "sup", "u", "wbr",
))  # fmt: skip
"""Inline tags, which do not separate words."""
_CHARSET = re.compile(rb"""<meta[^>]+charset=["']?([\w-]+)""", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class CorpusPage:
    """One page of a corpus."""

    key: str
    """Id of the page."""
    title: str
    html: str
    """Document of the page, which is not trusted."""

    @property
    def text(self) -> str:
        """Returns the text of the page with single spaces. Two megabytes of HTML take about a second."""
        return text_of(self.html)


class Corpus(ABC):
    """A set of pages that does not change while it is open."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Returns the name for messages, such as the folder."""

    @property
    @abstractmethod
    def state(self) -> str:
        """Returns a text that changes when the pages change."""

    @abstractmethod
    def listed(self) -> Iterator[str]:
        """Lists the ids of all pages, in the same order each time."""

    @abstractmethod
    def page(self, key: str) -> CorpusPage | None:
        """Reads a page; None if the corpus has none with this id."""

    def picture(self, key: str) -> tuple[bytes, str] | None:
        """Returns the bytes and the MIME type of a picture of the corpus; None if there is no such picture."""
        return None

    def target(self, key: str) -> str | None:
        """Returns the id of the page that a link to `key` opens; None if there is no such page."""
        return key if key in self._known else None

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.listed())


class GeneratedCorpus(Corpus):
    """The pages of a generated encyclopedia."""

    def __init__(self, encyclopedia: Encyclopedia) -> None:
        self._encyclopedia = encyclopedia
        self._subjects = {one.title: one for one in encyclopedia.subjects}

    @property
    def name(self) -> str:
        """Returns the seed and the number of pages."""
        return f"the encyclopedia of seed {self._encyclopedia.seed} with {len(self._subjects)} pages"

    @property
    def state(self) -> str:
        """Returns the name with the generator's version."""
        return f"{VERSION} {self.name}"

    def listed(self) -> Iterator[str]:
        """Lists the titles."""
        return iter(self._subjects)

    def page(self, key: str) -> CorpusPage | None:
        """Renders the article of a subject."""
        if (subject := self._subjects.get(key)) is None:
            return None
        html = article_of(subject, self._encyclopedia)
        return CorpusPage(key, subject.title, html)


class FolderCorpus(Corpus):
    """The HTML files in a folder and its subfolders. A symbolic link to a file outside is no page.

    Args:
        folder: the folder.
        key: config key of the folder, for errors.

    Raises:
        FlywheelError: there is no such folder.
    """

    def __init__(self, folder: Path, key: str) -> None:
        if not folder.is_dir():
            raise FlywheelError(f"`{key}`: there is no folder {folder}.", "Name a folder of HTML files, or a ZIM file.")
        self._folder = folder.resolve()

    @property
    def name(self) -> str:
        """Returns the folder."""
        return str(self._folder)

    @property
    def state(self) -> str:
        """Returns a digest of the files' names, sizes and times."""
        digest = sha256()
        for key in self.listed():
            status = (self._folder / key).stat()
            digest.update(f"{key}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def listed(self) -> Iterator[str]:
        """Lists the files, by their paths within the folder."""
        for folder, subfolders, files in os.walk(self._folder):
            subfolders.sort()
            for file in sorted(files):
                path = Path(folder, file)
                if path.suffix.lower() in SUFFIXES and self._inside(path) is not None:
                    yield path.relative_to(self._folder).as_posix()

    def page(self, key: str) -> CorpusPage | None:
        """Reads a file."""
        path = self._inside(self._folder / key) if key in self._known else None
        if path is None:
            return None
        html = decoded(path.read_bytes())
        return CorpusPage(key, title_of(html) or path.stem, html)

    def picture(self, key: str) -> tuple[bytes, str] | None:
        """Reads a picture of the folder."""
        path, mime = self._inside(self._folder / key), mimetypes.guess_type(key)[0] or ""
        return (path.read_bytes(), mime) if path is not None and mime.startswith("image/") else None

    def _inside(self, path: Path) -> Path | None:
        """Returns the real path of a file in the folder; None for any other path, also behind a symbolic link."""
        try:
            real = path.resolve()
            return real if real.is_relative_to(self._folder) and real.is_file() else None
        except (ValueError, OSError):  # a name with a null character, or one that is too long
            return None


class ZimCorpus(Corpus):
    """The HTML pages of a ZIM file.

    Args:
        file: the file.
        key: config key of the file, for errors.

    Raises:
        FlywheelError: the package libzim is missing, or it cannot read the file.
    """

    def __init__(self, file: Path, key: str) -> None:
        try:
            from libzim.reader import Archive
        except ImportError as error:
            raise FlywheelError(
                f"`{key}`: {file} is a ZIM file, and the package libzim is missing.",
                "Install it: pip install 'flywheel[zim]'.",
            ) from error
        try:
            self._archive: Any = Archive(file)
        except RuntimeError as error:
            raise FlywheelError(f"`{key}`: {file} is no ZIM file: {error}.", "Name another file.") from error
        self._file = file

    @property
    def name(self) -> str:
        """Returns the file."""
        return str(self._file)

    @property
    def state(self) -> str:
        """Returns the archive's id and size."""
        return f"{self._archive.uuid} {self._archive.filesize}"

    def listed(self) -> Iterator[str]:
        """Lists the paths of HTML entries that are no redirects."""
        for number in range(self._archive.all_entry_count):
            entry = self._archive._get_entry_by_id(number)
            if not entry.is_redirect and entry.get_item().mimetype.startswith(("text/html", "application/xhtml")):
                yield entry.path

    def page(self, key: str) -> CorpusPage | None:
        """Reads an entry; a redirect is read at its end."""
        target = self.target(key)
        if target is None:
            return None
        entry = self._archive.get_entry_by_path(target)
        html = decoded(bytes(entry.get_item().content))
        return CorpusPage(target, entry.title or title_of(html) or target, html)

    def picture(self, key: str) -> tuple[bytes, str] | None:
        """Reads a picture of the archive."""
        if not self._archive.has_entry_by_path(key):
            return None
        item = self._archive.get_entry_by_path(key).get_item()
        return (bytes(item.content), item.mimetype) if item.mimetype.startswith("image/") else None

    def target(self, key: str) -> str | None:
        """Follows redirects to the page that they end at."""
        if not self._archive.has_entry_by_path(key):
            return None
        item = self._archive.get_entry_by_path(key).get_item()
        return item.path if item.mimetype.startswith(("text/html", "application/xhtml")) else None


def open_corpus(path: Path, key: str) -> Corpus:
    """Opens a ZIM file if the suffix is `.zim`, else a folder; raises the errors of `ZimCorpus` and `FolderCorpus`."""
    return ZimCorpus(path, key) if path.suffix.lower() == ".zim" and path.is_file() else FolderCorpus(path, key)


def decoded(raw: bytes) -> str:
    """Decodes a document: as UTF-8, else by the character set that it declares, else as Windows-1252."""
    declared = _CHARSET.search(raw[:2048])
    for name in ("utf-8", declared[1].decode() if declared else "cp1252"):
        try:
            return raw.decode(name)
        except (UnicodeDecodeError, LookupError):
            continue
    return raw.decode("cp1252", "replace")


class _TextParser(HTMLParser):
    """Collects the text of a document."""

    def __init__(self) -> None:
        super().__init__()
        self.text = list[str]()
        self._inside = list[str]()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in _SKIPPED:
            self._inside.append(tag)
        if tag not in _INLINE:
            self.text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            del self._inside[self._inside.index(tag) :]
        if tag not in _INLINE:
            self.text.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text.append(data)


def title_of(html: str) -> str:
    """Returns the title of a document with single spaces; empty without one."""
    found = _TITLE.search(html)
    return " ".join(unescape(found[1]).split()) if found else ""


def text_of(html: str) -> str:
    """Returns the text of a document with single spaces, without its title."""
    parser = _TextParser()
    parser.feed(html)
    parser.close()
    return " ".join("".join(parser.text).split())


def marked(text: str, begin: str, end: str) -> str:
    """Escapes text for HTML, with bold parts between two marks."""
    return escape(text).replace(begin, "<b>").replace(end, "</b>")
