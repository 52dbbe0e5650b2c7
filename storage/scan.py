"""Read a table in batches. After an outage of the store, the read continues after the last batch."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

TOGETHER = 256
"""Maximum number of rows in a batch, pictures included."""


def scan(
    patiently: Callable[[Callable[[], Any]], Any],
    dataset: pads.Dataset,
    columns: Sequence[str],
    condition: pads.Expression | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table version, always in the same order.

    Args:
        patiently: runs a repeatable operation, retrying it while the store is unreachable.
        dataset: the table version.
        columns: names of the columns.
        condition: condition of the rows; all rows if None.
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
    """Skip the first `rows` rows."""
    for batch in batches:
        skipped = min(rows, batch.num_rows)
        rows -= skipped
        yield batch.slice(skipped)
