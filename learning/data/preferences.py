"""Preferences as a file that the trainer reads: one context, the preferred and the rejected reply."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from learning.data.files import Rows, write_rows
from learning.data.rollouts import prompt_after


@dataclass(frozen=True, slots=True)
class Preference:
    """Two replies to one context."""

    pair_id: str
    task_id: str
    screenshots: tuple[str, ...]
    """sha256 of the screenshots shown, oldest first, the current one last."""
    prompt: str
    chosen: str
    rejected: str
    weight: float = 1.0
    instruction: str = ""
    said: tuple[str, ...] = ()
    """Raw replies of all steps before, oldest first."""


_SCHEMA = pa.schema(
    [
        ("pair_id", pa.string()),
        ("task_id", pa.string()),
        ("screenshots", pa.list_(pa.string())),
        ("prompt", pa.string()),
        ("chosen", pa.string()),
        ("rejected", pa.string()),
        ("weight", pa.float64()),
        ("instruction", pa.string()),
        ("said", pa.list_(pa.string())),
    ]
)


def preferences_of(rows: Iterable[Mapping[str, Any]], dialect: str) -> Iterator[Preference]:
    """Preferences from rows of `storage/queries/training_pairs.sql`, in the policy's dialect."""
    for row in rows:
        yield Preference(**_tuples(row), prompt=prompt_after(row["instruction"], row["said"], dialect))


def write_preferences(path: Path, preferences: Iterable[Preference]) -> set[str]:
    """Writes preferences, in order; returns sha256 of the screenshots that they show."""
    return write_rows(path, _SCHEMA, preferences)


def read_preferences(path: Path) -> Rows[Preference]:
    """The preferences of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return Rows(path, lambda row: Preference(**_tuples(row)))


def _tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "screenshots": tuple(row["screenshots"]), "said": tuple(row["said"])}
