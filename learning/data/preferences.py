"""Preferences as a Parquet file that the trainer reads: one context, the preferred and the rejected reply."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from learning.data.rollouts import prompt_after
from schemas.config.sections import PolicyConfig


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


def preferences_of(rows: Iterable[Mapping[str, Any]], policy: PolicyConfig) -> list[Preference]:
    """Preferences from rows of `storage/queries/training_pairs.sql`."""
    return [_preference(list(steps), policy) for _, steps in groupby(rows, key=lambda row: row["pair_id"])]


def write_preferences(path: Path, preferences: Iterable[Preference]) -> None:
    """Writes preferences, in order."""
    pq.write_table(pa.Table.from_pylist([asdict(one) for one in preferences], _SCHEMA), path)


def read_preferences(path: Path) -> list[Preference]:
    """The preferences of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    rows = pq.read_table(path, schema=_SCHEMA).to_pylist()
    return [Preference(**{**row, **{name: tuple(row[name]) for name in ("screenshots", "said")}}) for row in rows]


def _preference(steps: Sequence[Mapping[str, Any]], policy: PolicyConfig) -> Preference:
    last = steps[-1]
    said = tuple(row["raw_text"] for row in steps[:-1])
    return Preference(
        pair_id=last["pair_id"],
        task_id=last["task_id"],
        screenshots=tuple(row["screenshot"] for row in steps[-policy.history_images :]),
        prompt=prompt_after(last["instruction"], said, policy.dialect),
        chosen=last["chosen"],
        rejected=last["rejected"],
        instruction=last["instruction"],
        said=said,
    )
