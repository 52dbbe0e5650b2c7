"""Search a folder and those below it for files of records, and name the files that an import leaves out.

Links to folders, hidden folders, lakes and the work folder are not searched. A folder of pictures holds no records.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from common.process import home
from common.text import counted
from schemas.failure import UsageError

PICTURES = "images"
"""Folder of an export's pictures."""
CONTEXT = "__context"
"""Folder of data that only an import of this project needs; other readers ignore such names."""
JSON_LINES = (".jsonl", ".ndjson")
LAKE = "flywheel.json"
"""A lake's schema marker."""
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".7z", ".tar", ".tgz")
_DATA = (*JSON_LINES, ".jsonlines", ".json", ".parquet", ".csv", ".tsv", ".arrow", ".feather", ".pkl", ".tfrecord")
"""Suffixes of files that look like records."""
_ABOUT = ("meta.json", "dataset_info.json", "dataset_infos.json", "state.json", "repo.json", "stats.json", "split.json")
"""Files about a data set: ScaleCUA's mix file, those of `datasets` and those of cua-lite."""
_MOST_NAMED = 3
"""Maximum number of files that a note names."""


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the visible files of a folder, its `CONTEXT` first, then of the folders in it, and links to folders."""
    every = sorted(folder.iterdir())
    inner = [one for one in every if one.is_dir() and not one.is_symlink()]
    context = [one for one in inner if one.name == CONTEXT]
    for one in context:
        yield from files_below(one)
    yield from (one for one in every if not one.name.startswith(".") and (one.is_file() or one.is_symlink()))
    for one in inner:
        if one not in context and _is_searched(one):
            yield from files_below(one)


def is_visible(file: Path, folder: Path) -> bool:
    """Return whether a file is visible, and each folder between it and `folder` is one that an import searches."""
    between = [one for one in file.parents if one != folder and one.is_relative_to(folder)]
    return not file.name.startswith(".") and all(map(_is_searched, between))


def _is_searched(folder: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name == "__MACOSX"
    return not hidden and folder != home() and not (folder / LAKE).is_file()


def shows(file: Path, folder: Path, images: Path | None) -> bool:
    """Return whether a file below `folder` lies in a folder of pictures, such as `images`."""
    given = images is not None and images != folder and images.is_relative_to(folder) and file.is_relative_to(images)
    return given or PICTURES in file.relative_to(folder).parts[:-1]


def require_plain(files: Collection[Path], suffixes: Sequence[str], named: Callable[[Path], str]) -> None:
    """Check that no file of records is compressed, unless it is there decompressed as well.

    Raises:
        UsageError: names the first such file.
    """
    found = [one for one in files if one.suffix.lower() in COMPRESSED and Path(one.stem).suffix.lower() in suffixes]
    packed = [one for one in found if not one.with_suffix("").is_file()]
    if packed:
        more = f", and so {'is' if len(packed) == 2 else 'are'} {len(packed) - 1} more" if packed[1:] else ""
        problem = f"{named(packed[0])} is compressed{more}: an import reads plain files."
        raise UsageError(problem, "Decompress it, or move it out of the folder.")


def left_out(file: Path, reads: str, shown: bool) -> str:
    """Return why a file that looks like records is not read; empty for a file that does not.

    Args:
        file: a file that is not read, or a link to a folder.
        reads: the files that are read, in words.
        shown: whether it lies in a folder of pictures.
    """
    suffix = file.suffix.lower()
    if not file.exists():
        return "a broken link" if suffix in _DATA else ""
    if file.is_dir():
        return "" if file.name == PICTURES else "links to folders are not followed"
    if shown:
        return "it is in a folder of images" if suffix in _DATA and suffix != ".json" else ""
    if suffix in COMPRESSED:
        return "an import reads plain files"
    return reads if suffix in _DATA and file.name not in _ABOUT else ""


def form_of(suffixes: Sequence[str]) -> str:
    """Return suffixes in words, such as `*.jsonl or *.ndjson`."""
    return " or ".join(", ".join(f"*{one}" for one in suffixes).rsplit(", ", 1))


def notes_of(left_out: Sequence[tuple[str, str]]) -> list[str]:
    """Return a sentence for each reason why files are not read.

    Args:
        left_out: name and reason of each file.
    """
    found = groupby(sorted(left_out, key=lambda one: one[1]), key=lambda one: one[1])
    return [f"Not read: {in_short([name for name, _ in files])} ({reason})." for reason, files in found]


def in_short(names: Sequence[str]) -> str:
    """Return the first names and the number of the others."""
    more = f" and {counted(len(names) - _MOST_NAMED, 'more file')}" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
