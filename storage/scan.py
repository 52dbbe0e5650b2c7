"""Reading a table batch by batch where its storage may be away in the middle: it goes on after the last batch."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

TOGETHER = 256
"""Rows of one batch, pictures among them."""


def scan(
    patiently: Callable[[Callable[[], Any]], Any],
    dataset: pads.Dataset,
    columns: Sequence[str],
    condition: pads.Expression | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a version of a table, always in the same order.

    Args:
        patiently: does what can be done again until the storage answers.
        dataset: the version.
        columns: their names.
        condition: which rows.
    """
    reading: Iterator[pa.RecordBatch] | None = None
    done = 0

    def following() -> pa.RecordBatch | None:
        nonlocal reading
        if reading is None:
            found = dataset.to_batches(
                columns=list(columns), filter=condition, batch_size=TOGETHER, batch_readahead=1, fragment_readahead=1
            )
            reading = _after(found, done)
        try:
            return next(reading, None)
        except Exception:
            reading = None
            raise

    while (batch := patiently(following)) is not None:
        done += batch.num_rows
        yield batch


def _after(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """What follows on the first so many rows."""
    for batch in batches:
        skipped = min(rows, batch.num_rows)
        rows -= skipped
        yield batch.slice(skipped)
