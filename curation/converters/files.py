"""Reads files of foreign data sets, whose names and bytes are untrusted, and writes exports as new folders.

A picture's name in a record is data: it may not be an absolute path, and its resolved target must be below the folders
of pictures. Pictures become plain PNGs (`common.picture`); no other data is changed.
"""

import base64
import io
import json
import os
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeVar, cast

from PIL import Image, UnidentifiedImageError
from pydantic import BaseModel, ValidationError

from common.picture import plain
from common.text import storable, strict_json
from curation.converters.exchanged import Picture, RecordPlace, RecordRefused, flaw_of
from curation.converters.search import (
    PICTURES,
    files_below,
    form_of,
    in_short,
    left_out,
    require_plain,
    shows,
)
from schemas.config.curating import VideoConfig
from schemas.failure import UsageError
from schemas.problem import problem_of

M = TypeVar("M", bound=BaseModel)

MOST_BYTES = 64_000_000
"""Maximum bytes of one line and of one picture's file."""
MOST_SIDE = 16_384
"""Maximum pixels of a picture's side, as in the lake's quality gate."""
MOST_PIXELS = 64_000_000
"""Maximum pixels of a picture: about twice an 8K screen."""
KINDS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
KEPT = 32
"""Number of pictures kept in memory, for formats that show one in several rows."""
_OTHER = "name the file of the records"
BINARY = {
    b"\x89PNG": f"an image; {_OTHER}",
    b"\xff\xd8\xff": f"an image; {_OTHER}",
    b"GIF8": f"an image; {_OTHER}",
    b"RIFF": f"an image or a sound; {_OTHER}",
    b"PAR1": "Parquet; name it *.parquet",
    b"PK": "a ZIP archive; unpack it",
    b"\x1f\x8b": "compressed; unpack it",
    b"\x28\xb5\x2f\xfd": "compressed; unpack it",
    b"BZh": "compressed; unpack it",
    b"\xfd7zXZ": "compressed; unpack it",
    b"SQLite": f"a database; {_OTHER}",
}
"""First bytes of files that are not JSON, each with its kind and its fix."""


@dataclass(frozen=True, slots=True)
class RecordedAs:
    """Settings for records of screen recordings."""

    instruction: str = ""
    """Instruction of records that have none."""
    license: str = ""
    """Licence of records that have none."""
    video: VideoConfig = field(default_factory=VideoConfig)


class ImportSource:
    """A file or folder to import.

    Args:
        path: the named file or folder.
        images: the folder to which pictures' names are relative; if not given, the file's folder and `images` in it.
        unit: the unit of coordinates, for records without one.
        stored: tells by the ids of a lake and a trajectory whether the trajectory is in the importing lake. Formats
            that return reviewers' decisions need no pictures of such trajectories.
        recorded: settings for records of screen recordings.

    Raises:
        UsageError: the file or folder does not exist.
    """

    def __init__(
        self,
        path: Path,
        images: Path | None = None,
        unit: str | None = None,
        stored: Callable[[str, str], bool] = lambda lake, name: False,
        recorded: RecordedAs | None = None,
    ) -> None:
        if not path.exists():
            raise UsageError(f"There is nothing at {path}.", "Name a file or a folder.")
        if images is not None and not images.is_dir():
            raise UsageError(f"`--images`: {images} is not a folder.", "Name the folder that images are named from.")
        self.path, self.unit, self.stored = path.absolute(), unit, stored
        self.recorded = recorded or RecordedAs()
        self.folder = self.path if self.path.is_dir() else self.path.parent
        self.left_out: list[tuple[str, str]] = []
        """Files below the folder that look like records and are not read, each with the reason."""
        self._images = images.absolute() if images else None
        self._roots = [self._images] if self._images else [self.folder, self.folder / PICTURES]
        self._pictures: OrderedDict[tuple[str, str], Picture] = OrderedDict()
        self._below: dict[str, list[str]] | None = None

    def files(self, *suffixes: str) -> list[Path]:
        """Return the named file, or the files with one of these suffixes in a folder and those below it, in order.

        Of each folder those of its `CONTEXT` come first. `left_out` then has the other files that look like records.

        Raises:
            UsageError: there is none, or a compressed one.
        """
        if not self.path.is_dir():
            return [self.path]
        files = [one for one in self._files if one.is_file() and not self._shows(one)]
        found = [one for one in files if one.suffix.lower() in suffixes]
        require_plain(files, suffixes, self.named)
        self.leave_out(found, f"read are *{', *'.join(suffixes)}")
        if not found:
            only = f", only {in_short([name for name, _ in self.left_out])}" if self.left_out else ""
            raise UsageError(f"{self.path} has no file of the form {form_of(suffixes)}{only}.", "Name the file.")
        return found

    def leave_out(self, found: Collection[Path], reads: str, other: Callable[[Path], bool] = lambda file: True) -> None:
        """Set `left_out` to the files that look like records and are not among those found, and to empty ones.

        Args:
            found: the files that are read.
            reads: the files that are read, in words.
            other: whether a file may hold records that are not read.
        """
        rest = set(self._files) - set(found)
        reasons = ((one, left_out(one, reads, self._shows(one))) for one in sorted(rest) if other(one))
        empty = ((one, "it is empty") for one in sorted(found) if one.stat().st_size == 0)
        self.left_out = [(self.named(one), why) for one, why in (*reasons, *empty) if why]

    @cached_property
    def _files(self) -> list[Path]:
        return list(files_below(self.path)) if self.path.is_dir() else []

    def _shows(self, file: Path) -> bool:
        return shows(file, self.folder, self._images)

    def named(self, file: Path) -> str:
        """Return a file's name in messages."""
        return storable(str(file.relative_to(self.folder)) if file.is_relative_to(self.folder) else str(file))

    def lines(self, file: Path) -> Iterator[tuple[RecordPlace, Any]]:
        """Yield the JSON value of every line that is not blank, or a `RecordRefused` for an invalid line."""
        with file.open("rb") as content:
            number = 0
            while line := content.readline(MOST_BYTES + 1):
                number += 1
                place = RecordPlace(self.named(file), number)
                if len(line) > MOST_BYTES:
                    yield place, RecordRefused(place, "", f"a line of more than {MOST_BYTES:,} bytes")
                    while line and not line.endswith(b"\n"):
                        line = content.readline(MOST_BYTES)
                elif line.strip():
                    yield place, parsed(line, place)

    def records(self, file: Path) -> Iterator[tuple[RecordPlace, Any]]:
        """Yield the records of a JSON file: the values of its lines, or those of its one array or object.

        An array of messages is one record, a chat. A `RecordRefused` replaces invalid JSON.
        """
        if refused := self._binary(file):
            yield refused.place, refused
            return
        first, more = self._first(file)
        begins, alone = first.lstrip(b"\xef\xbb\xbf \t\r")[:1], parsed(first, RecordPlace(self.named(file), 1))
        whole = isinstance(alone, RecordRefused) or (begins == b"[" and not more)
        place, value = (
            self.document(file) if whole and begins in (b"[", b"{") else (RecordPlace(self.named(file)), None)
        )
        items = items_of(value)
        if items is not None and not (items and all("role" in fields_of(one) for one in items)):
            yield from ((RecordPlace(place.file, number, "record"), one) for number, one in enumerate(items, 1))
        elif isinstance(value, RecordRefused) and begins == b"[":
            place = RecordPlace(place.file, 1)
            problem = f"{value.problem}; an array is read as a whole: write one record a line"
            yield place, RecordRefused(place, "", problem)
        elif value is None or isinstance(value, RecordRefused):
            yield from self.lines(file)
        else:
            yield place, value

    def rows(self, *suffixes: str) -> Iterator[tuple[RecordPlace, Any]]:
        """Yield the records of all files with one of these suffixes (`files`, `records`)."""
        for file in self.files(*suffixes):
            yield from self.records(file)

    def _first(self, file: Path) -> tuple[bytes, bool]:
        """Return the first line that is not blank, and whether another follows."""
        with file.open("rb") as content:
            filled = (line for line in iter(lambda: content.readline(MOST_BYTES + 1), b"") if line.strip())
            return next(filled, b""), next(filled, None) is not None

    def document(self, file: Path) -> tuple[RecordPlace, Any]:
        """Return the JSON value of a whole file, or a `RecordRefused` if it is invalid."""
        place = RecordPlace(self.named(file))
        if refused := self._binary(file):
            return place, refused
        if file.stat().st_size > MOST_BYTES:
            return place, RecordRefused(place, "", f"a file of more than {MOST_BYTES:,} bytes")
        value = parsed(file.read_bytes(), place)
        if isinstance(value, RecordRefused):
            first, more = self._first(file)
            if more and not isinstance(parsed(first, place), RecordRefused):
                problem = "a JSON value on each line: make an array of them (`jq -s .`), or a file for each"
                return place, RecordRefused(place, "", problem)
        return place, value

    def _binary(self, file: Path) -> RecordRefused | None:
        """Return the refusal of a binary file; None for a text."""
        kind = binary_kind(file)
        if kind.startswith("Parquet") and file.suffix.lower() == ".parquet":
            kind = "Parquet, which this format does not have. Write its rows as lines of JSON"
        return RecordRefused(RecordPlace(self.named(file)), "", f"not JSON: it is {kind}") if kind else None

    def picture(self, name: str, place: RecordPlace, field: str) -> Picture:
        """Return the picture of this name.

        Raises RecordRefused as `picture_of` does, or if the name is empty, or leads out of the folder or nowhere.
        """
        if not name:
            raise RecordRefused(place, field, "no screenshot: the name of the image is empty")
        key = (self._inner(place), name)
        if key not in self._pictures:
            content = _inline(name, place, field)
            content, called = (self._found(name, place, field), name) if content is None else (content, "")
            self._pictures[key] = picture_of(content, place, field, called)
            if len(self._pictures) > KEPT:
                self._pictures.popitem(last=False)
        self._pictures.move_to_end(key)
        return self._pictures[key]

    def _inner(self, place: RecordPlace) -> str:
        """Return the folder of a record's file, where pictures are searched first; empty for the import's folder."""
        folder = str(PurePosixPath(place.file).parent)
        return "" if self._images or folder == "." or not (self.folder / folder).is_dir() else folder

    def holds(self, name: str) -> bool:
        """Return whether a folder of pictures has a file with this name."""
        try:
            return any((root / name).is_file() for root in self._roots)
        except (OSError, ValueError):
            return False

    def below(self, file: str) -> list[str]:
        """Return the names of all files below the folder of pictures that have this file name."""
        if self._below is None:
            self._below = defaultdict(list)
            for folder, _, files in os.walk(self._roots[0]):
                for one in files:
                    self._below[one].append(str(Path(folder, one).relative_to(self._roots[0])))
        return sorted(self._below.get(file, ()))

    @property
    def pictures_at(self) -> str:
        """Return the folders in which pictures are searched, for messages."""
        return " or ".join(map(str, self._roots))

    def _found(self, name: str, place: RecordPlace, field: str) -> bytes:
        """Return the bytes of a picture, of its record's folder if that has one of this name."""
        if PurePosixPath(name).is_absolute() or PureWindowsPath(name).is_absolute():
            problem = f"{name[:200]!r} is absolute: write it relative to the folder of the data, or to `--images DIR`"
            raise RecordRefused(place, field, problem)
        inner = self._inner(place)
        for one in (f"{inner}/{name}", f"{inner}/{PICTURES}/{name}", name) if inner else (name,):
            if (content := self._content_of(one, place, field)) is not None:
                return content
        problem = f"there is no image {name!r} in {self.pictures_at}; name its folder with `--images DIR`"
        raise RecordRefused(place, field, problem)

    def _content_of(self, name: str, place: RecordPlace, field: str) -> bytes | None:
        """Return the bytes of a picture; a folder whose file is a bad link is skipped if another has the picture."""
        every, problems = list[bytes](), list[RecordRefused]()
        for root in self._roots:
            try:
                content = self._content(root, name, place, field)
            except RecordRefused as problem:
                if ".." in name.split("/"):
                    raise
                problems.append(problem)
            else:
                every += [] if content is None else [content]
        if problems and not every:
            raise problems[0]
        if len(set(every)) > 1:
            folders = " and ".join(map(str, self._roots))
            problem = f"{folders} have different images {name!r}: name the folder with `--images DIR`"
            raise RecordRefused(place, field, problem)
        return every[0] if every else None

    def _content(self, root: Path, name: str, place: RecordPlace, field: str) -> bytes | None:
        """Return the bytes of a picture; None if the folder has no such file."""
        try:
            found = (root / name).resolve()
            if not found.is_relative_to(root.resolve()):
                problem = f"{name[:200]!r} leads out of the folder of images; name a higher one with `--images DIR`"
                raise RecordRefused(place, field, problem)
            if found.is_file():
                if found.stat().st_size > MOST_BYTES:
                    raise RecordRefused(place, field, f"{name!r} has more than {MOST_BYTES:,} bytes")
                return found.read_bytes()
        except RecordRefused:
            raise
        except (OSError, ValueError, RuntimeError) as error:  # too long, a zero byte, a lone surrogate, a loop
            raise RecordRefused(place, field, f"{name[:200]!r} is not a file name: {error}") from error
        return None


def binary_kind(file: Path) -> str:
    """Return what a file is by its first bytes (`BINARY`); empty for a text."""
    with file.open("rb") as content:
        begin = content.read(16)
    return next((kind for first, kind in BINARY.items() if begin.startswith(first)), "")


def parsed(text: bytes, place: RecordPlace) -> Any:
    """Parse JSON; return a `RecordRefused` if it is invalid."""
    try:
        return json.loads(text)
    except UnicodeDecodeError:
        return RecordRefused(place, "", "not JSON: it is not UTF-8 text. Name the file of the records, or convert it")
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, character {error.colno}"
        if place.line is not None:
            at = f"character {min(error.pos, len(error.doc.rstrip())) + 1} of the {place.counted}"
        return RecordRefused(place, "", f"not JSON: {error.msg}: {at}")
    except (ValueError, RecursionError) as error:
        return RecordRefused(place, "", f"not JSON: {error}")


def _inline(name: str, place: RecordPlace, field: str) -> bytes | None:
    """Return the bytes of a data URL; None for the name of a file.

    Raises:
        RecordRefused: another URL, which no import fetches, or one without base64.
    """
    scheme, colon, rest = name.partition(":")
    if scheme.lower() == "data" and colon:
        kind, _, content = rest.partition(",")
        try:
            if not kind.endswith(";base64"):
                raise ValueError("it is not in base64")
            return base64.b64decode("".join(content.split()), validate=True)
        except ValueError as error:
            raise RecordRefused(place, field, f"no image in the data URL: {error}") from error
    if rest.startswith("//"):
        problem = f"{name[:200]!r} is not fetched; save the image below the folder, and put its name there"
        raise RecordRefused(place, field, problem)
    return None


def picture_of(content: bytes, place: RecordPlace, field: str, name: str = "") -> Picture:
    """Return the picture in a named file; raise RecordRefused if it is no picture, truncated, or too large."""
    where = f" in {name[:200]!r}" if name else ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Image.open(io.BytesIO(content), formats=KINDS) as image:
                width, height = image.size
                if max(width, height) > MOST_SIDE or width * height > MOST_PIXELS:
                    raise RecordRefused(
                        place, field, f"an image of {width} x {height} pixels is larger than a lake takes"
                    )
                image.load()
                png, width, height = plain(content, KINDS)
    except RecordRefused:
        raise
    except UnidentifiedImageError as error:  # whose own message names the buffer
        raise RecordRefused(place, field, f"no image{where}: it is none of {', '.join(KINDS)}") from error
    except (Image.DecompressionBombError, OSError, SyntaxError, ValueError, EOFError, Warning) as error:
        raise RecordRefused(place, field, f"no image{where}: {str(error)[:200]}") from error
    return Picture(png, width, height)


class OpenModel(BaseModel, extra="allow"):
    """An object of a record, which may have fields without a column in this project."""

    @property
    def others(self) -> dict[str, Any]:
        """These fields."""
        return self.model_extra or {}


def model_of(kind: type[M], value: Any, place: RecordPlace) -> M:
    """Parse a record into its columns; raise RecordRefused that names an invalid field, or a field that no lake
    stores."""
    if isinstance(value, RecordRefused):
        raise value
    if flaw := flaw_of(value):
        raise RecordRefused(place, *flaw)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise RecordRefused(place, *problem_of(error)) from error


def fields_of(value: object) -> dict[str, Any]:
    """Return the fields of a JSON object; none for another value."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def items_of(value: object) -> list[Any] | None:
    """Return the items of a list; None for another value."""
    return list(cast(Sequence[Any], value)) if isinstance(value, list | tuple) else None


class Target:
    """A new folder for an export.

    Args:
        folder: the folder.
        images_at: prefix of a picture's name in formats that name pictures by their address.
    """

    def __init__(self, folder: Path, images_at: str = "") -> None:
        self.folder, self.images_at = folder, images_at

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        file = self.path(name)
        file.write_bytes(content)

    def append(self, name: str, content: bytes) -> None:
        """Append to a file."""
        with self.path(name).open("ab") as file:
            file.write(content)

    def path(self, name: str) -> Path:
        """Return the path of a file, in a folder that exists."""
        file = self.folder / name
        if not file.resolve().is_relative_to(self.folder.resolve()):
            raise UsageError(
                f"{name[:200]!r} leads out of the export's folder.", "The format must name files inside it."
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def picture(self, picture: Picture) -> str:
        """Write a picture once, and return its name."""
        name = f"{PICTURES}/{picture.sha256}.png"
        if not (self.folder / name).exists():
            self.write(name, picture.png)
        return name


def line_of(value: Mapping[str, Any] | list[Any]) -> str:
    """Return one line of JSON; a lone surrogate is written as its escape, so that the line is UTF-8."""
    return storable(strict_json(value, ensure_ascii=False)) + "\n"
