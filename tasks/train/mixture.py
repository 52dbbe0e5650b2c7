"""Mix samples of several kinds for one training, and write them to one file.

The lake has the samples and their weights, and `learning.data.sampler` computes the order. Only samples that occur in
the training are read in full: at most S x B samples for S steps with B samples each.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from learning.data.sample import write_sample_batches
from learning.data.sampler import Sampler, by_sample
from schemas.failure import FlywheelError
from storage.catalog import ask, stream
from storage.lake import Lake


@dataclass(frozen=True, slots=True)
class MixturePart:
    """Samples of one kind."""

    weighed: pa.Table
    """Samples with their `weight`. A row without a weight never occurs."""
    query: str
    """Query for the content of the samples that occur."""
    share: float = 1.0
    """Share of the training. The share of a part without samples goes to the other parts."""
    steps: bool = False
    """Whether the rows are steps. Each step is then written with the steps that lead to it."""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Parameters of the query."""

    @property
    def usable(self) -> int:
        """Number of samples that can occur."""
        weights = self.weighed["weight"]
        return len(weights) - weights.null_count


def perception_part(lake: Lake, pins: Mapping[str, int], share: float) -> MixturePart:
    """Return the perception data. If its share is 0, the lake is not queried."""
    weighed = ask(lake, "perception_weights", pins if share else {})
    return MixturePart(weighed, "perception_samples", share)


def write_mixture(
    path: Path, parts: Sequence[MixturePart], count: int, seed: int, lake: Lake, pins: Mapping[str, int]
) -> set[str]:
    """Write the samples at the positions [0, count) of a training, and return the sha256 of their screenshots."""
    parts = [part for part in parts if part.share and part.usable]
    come = drawn([part.weighed for part in parts], count, seed, [part.share for part in parts])
    return write_sample_batches(path, _batches(path, list(zip(parts, come, strict=True)), lake, pins))


def _batches(
    path: Path, come: Sequence[tuple[MixturePart, pa.Table]], lake: Lake, pins: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    for number, (part, rows) in enumerate(come):
        if part.steps:
            rows = rows.append_column("way", ways(part.weighed, rows["row"].to_numpy()))
        named = path.with_name(f"drawn-{number}.parquet")
        pq.write_table(rows, named)
        with stream(lake, part.query, pins, drawn=str(named), **part.parameters) as batches:
            yield from batches


def drawn(weighed: Sequence[pa.Table], count: int, seed: int, shares: Sequence[float] = (1.0,)) -> list[pa.Table]:
    """Return the rows of every part that occur at the positions [0, count) of a training, in order.

    Returns:
        For each part: its rows with `sample` (a number from 0), `row` (the index among all rows), and `positions`.

    Raises:
        FlywheelError: no row has a weight above 0.
    """
    weights = [table["weight"].to_numpy().astype(np.float64) for table in weighed]
    usable = [np.flatnonzero(np.isfinite(one)) for one in weights]
    scaled = [one[rows] for one, rows in zip(weights, usable, strict=True)]
    if len(scaled) > 1:
        scaled = [share * one / one.sum() for share, one in zip(shares, scaled, strict=True)]
    try:
        sampler = Sampler(np.concatenate([np.empty(0), *scaled]), seed)
    except ValueError as error:
        raise FlywheelError(
            f"Nothing to train on: {error}.", "Look at train.practice and train.task_balance."
        ) from error
    ids, starts, positions = by_sample(sampler.first(count))
    edges = np.cumsum([0, *(len(rows) for rows in usable)])
    found: list[pa.Table] = []
    for table, rows, first, last in zip(weighed, usable, edges[:-1], edges[1:], strict=True):
        low, high = np.searchsorted(ids, [first, last])
        own = rows[ids[low:high] - first]
        come = table.take(pa.array(own))
        offsets = pa.array(starts[low : high + 1] - starts[low], pa.int32())
        more = {
            "sample": pa.array(np.arange(len(own))),
            "row": pa.array(own),
            "positions": pa.ListArray.from_arrays(offsets, pa.array(positions[starts[low] : starts[high]])),
        }
        found.append(pa.table({**{name: come[name] for name in come.column_names}, **more}))
    return found


def ways(weighed: pa.Table, rows: np.ndarray) -> pa.ListArray:
    """Return, for each of these rows, the rows of the steps that lead to it, and the row itself as the last."""
    steps, places = weighed["step"].to_numpy(), weighed["place"].to_numpy()[rows]
    return pa.array(
        [steps[row - place : row + 1] for row, place in zip(rows, places, strict=True)], pa.list_(pa.int32())
    )
