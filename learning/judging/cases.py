"""Stores verified trajectories on disk for the judge's network, so that memory does not grow with the lake.

Each array of a case has its own file, with one row per case; a trajectory takes about 40 kB in all files. The files are
memory-mapped, and training reads the rows of a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models.judges.judge import JudgeCase
from models.judges.local.features import Array, features_of, stacked
from models.judges.local.network import numbered

PARTS = np.int16
"""Number type of parts of names on disk; there are 4096 different parts."""


@dataclass(frozen=True, slots=True)
class Example:
    """Trajectory with a verifier's result."""

    case: JudgeCase
    success: bool
    page: str
    """Task and seed of the trajectory."""


class Cases:
    """Examples, added in any number and read by their numbers.

    Args:
        folder: a new or empty folder for the files; it must exist while cases are read.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._shapes: dict[str, tuple[np.dtype[np.generic], tuple[int, ...]]] = {}
        self._mapped: dict[str, Array] = {}
        self._truth: list[bool] = []
        self.pages: list[str] = []
        """Task and seed of each example."""

    def __len__(self) -> int:
        return len(self._truth)

    @property
    def truth(self) -> Tensor:
        """Returns (n,) float32: 1 for a success, else 0."""
        return torch.tensor(self._truth, dtype=torch.float32)

    @property
    def numbers(self) -> int:
        """Returns the length of a case's `Features.numbers`; 0 without cases."""
        return self._shapes["numbers"][1][0] if self._shapes else 0

    def add(self, examples: Sequence[Example]) -> None:
        """Appends examples."""
        if not examples:
            return
        arrays = stacked([features_of(one.case) for one in examples])
        self._mapped = {}
        for name, array in arrays.items():
            kept = array.astype(PARTS) if array.dtype == np.int64 else array
            self._shapes[name] = (kept.dtype, kept.shape[1:])
            with (self._folder / name).open("ab") as file:
                file.write(kept.tobytes())
        self._truth += [one.success for one in examples]
        self.pages += [one.page for one in examples]

    def batch(self, at: Sequence[int] | Array) -> dict[str, Tensor]:
        """Reads the cases with these numbers, as inputs of the network."""
        if not self._mapped:
            self._mapped = {
                name: np.memmap(self._folder / name, dtype, "r", shape=(len(self), *shape))
                for name, (dtype, shape) in self._shapes.items()
            }
        rows = {name: np.asarray(mapped[at]) for name, mapped in self._mapped.items()}
        return numbered({name: row.astype(np.int64) if row.dtype == PARTS else row for name, row in rows.items()})
