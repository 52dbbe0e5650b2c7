"""Collect rows of one table for one commit, in little memory.

A stage that must write all of its decisions in one commit collects the rows of all trajectories. A row takes some
kilobytes as an object, and little more than its text in Arrow.
"""

from collections.abc import Iterable

import pyarrow as pa

from schemas.table import Row
from schemas.tables import TABLES

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
