"""Define the data of a training method, and collect rows of one table for one commit, in little memory.

A stage that must write all of its decisions in one commit collects the rows of all trajectories. A row takes some
kilobytes as an object, and little more than its text in Arrow.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from learning.algorithms.method import Schedule
from learning.data.sample import SCREENSHOT_COLUMNS, read_screenshots, write_screenshot_batches
from schemas.config import Config
from schemas.failure import LakeError
from schemas.table import Json, Metrics, Row
from schemas.tables import TABLES
from storage.lake import Lake
from tasks.shared.policies import PolicyRecipe

TOGETHER = 4096
"""Maximum number of rows kept as objects."""


class RowPacker:
    """Collects rows.

    Args:
        table: name of the table.
    """

    def __init__(self, table: str) -> None:
        self._contract = TABLES[table]
        self._rows: list[Row] = []
        self._packed: list[pa.Table] = []

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows."""
        for row in rows:
            self._rows.append(row)
            if len(self._rows) == TOGETHER:
                self._pack()

    def whole(self) -> pa.Table:
        """Return all rows so far, in order."""
        self._pack()
        return pa.concat_tables([self._contract.schema.empty_table(), *self._packed])

    def _pack(self) -> None:
        self._packed.append(self._contract.arrow(self._rows))
        self._rows = []


@dataclass(frozen=True, slots=True)
class TrainingMaterial:
    """Training data of one method."""

    write: Callable[[Path, Schedule], Collection[str]]
    """Writes the samples of a training to the trainer's file, and returns the sha256 of their screenshots."""
    samples: int
    """Number of samples."""
    summary: str
    """Description of the data."""
    nothing: str = ""
    """Reason why there is no data; empty if there is data."""
    draws: int | None = None
    """Number of slices, if slices are drawn (`learning.data.slices`); None if samples are drawn."""
    numbers: Metrics = field(default_factory=dict[str, Json])
    """Numbers that are stored with the policy's metrics."""


def seed_of(config: Config, recipe: PolicyRecipe) -> int:
    """Return the random seed of a training."""
    return config.seed * 1000 + recipe.iteration


def pngs_of(lake: Lake, digests: Collection[str], version: int | None = None) -> dict[str, bytes]:
    """Return screenshots by their sha256, at a table version (the latest if not given).

    Missing screenshots are left out.

    Raises:
        LakeError: the content of a picture does not match its sha256.
    """
    found = lake.read("screenshots", ["sha256", "png"], {"sha256": list(digests)}, version=version)
    for batch in found.to_batches():
        _as_named(batch)
    return dict(zip(found["sha256"].to_pylist(), found["png"].to_pylist(), strict=True))


def pngs_trained_on(lake: Lake, digests: Collection[str]) -> dict[str, bytes]:
    """Return screenshots by their sha256.

    Raises:
        LakeError: a screenshot is not in the lake, or its content does not match its sha256.
    """
    pngs = pngs_of(lake, digests)
    _require_all(digests, pngs)
    return pngs


def write_pictures(path: Path, lake: Lake, digests: Collection[str], version: int | None) -> None:
    """Write screenshots at a table version to the trainer's file. Raises the errors of `pngs_trained_on`."""
    found = lake.batches("screenshots", SCREENSHOT_COLUMNS, {"sha256": list(digests)}, version)
    write_screenshot_batches(path, map(_as_named, found))
    _require_all(digests, read_screenshots(path))


def _require_all(digests: Collection[str], found: Mapping[str, bytes]) -> None:
    missing = set(digests) - found.keys()
    if missing:
        raise LakeError(
            f"{len(missing)} of {len(digests)} screenshots are not in the lake, {min(missing)} for one.",
            "Restore table `screenshots`, or delete the trajectories that show them.",
        )


def _as_named(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Check that each picture matches its sha256, so that training sets with equal names have equal bytes.

    Raises:
        LakeError: the content of a picture does not match its sha256.
    """
    for name, png in zip(batch["sha256"].to_pylist(), batch["png"], strict=True):
        if hashlib.sha256(png.as_buffer()).hexdigest() != name:
            raise LakeError(
                f"The screenshot {name} does not match its name, the sha256 of its bytes.",
                "Restore it in table `screenshots`, or delete the trajectories that show it (`flywheel forget`).",
            )
    return batch
