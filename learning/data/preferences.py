"""Reads and writes preferences as a file: a context, the preferred reply and the rejected reply."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from learning.data.files import FileRows, write_rows


@dataclass(frozen=True, slots=True)
class Preference:
    """Two replies to one context; all replies are in the notation of the policy's family."""

    pair_id: str
    task_id: str
    screenshots: tuple[str, ...]
    """sha256 of the prompt's screenshots, oldest first; the current one is the last."""
    instruction: str
    past_replies: tuple[str, ...]
    """Replies of all past steps, oldest first."""
    chosen: str
    rejected: str
    weight: float = 1.0


_SCHEMA = pa.schema(
    [
        ("pair_id", pa.string()),
        ("task_id", pa.string()),
        ("screenshots", pa.list_(pa.string())),
        ("instruction", pa.string()),
        ("past_replies", pa.list_(pa.string())),
        ("chosen", pa.string()),
        ("rejected", pa.string()),
        ("weight", pa.float64()),
    ]
)


def write_preferences(path: Path, preferences: Iterable[Preference]) -> set[str]:
    """Writes preferences, in order; returns the sha256 of their screenshots."""
    return write_rows(path, _SCHEMA, preferences)


def read_preferences(path: Path) -> FileRows[Preference]:
    """Opens the preferences of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return FileRows(path, Preference)
