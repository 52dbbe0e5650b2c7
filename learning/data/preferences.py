"""Preferences as a file that the trainer reads: one context, the preferred and the rejected reply."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from learning.data.files import FileRows, write_rows


@dataclass(frozen=True, slots=True)
class Preference:
    """Two replies to one context, all replies as the policy's family writes them."""

    pair_id: str
    task_id: str
    screenshots: tuple[str, ...]
    """sha256 of the screenshots shown, oldest first, the current one last."""
    instruction: str
    past_replies: tuple[str, ...]
    """Replies of all steps before, oldest first."""
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
    """Writes preferences, in order; returns sha256 of the screenshots that they show."""
    return write_rows(path, _SCHEMA, preferences)


def read_preferences(path: Path) -> FileRows[Preference]:
    """The preferences of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return FileRows(path, _preference)


def _preference(row: dict[str, Any]) -> Preference:
    return Preference(**{**row, "screenshots": tuple(row["screenshots"]), "past_replies": tuple(row["past_replies"])})
