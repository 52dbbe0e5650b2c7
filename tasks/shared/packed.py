"""Rows of one table that one commit is to write, kept small until then.

A stage whose decisions are to be there whole or not at all gathers what it finds of all trajectories. As objects, a row
takes some kilobytes; as Arrow, little more than its text.
"""

from collections.abc import Iterable

import pyarrow as pa

from schemas.table import Row
from schemas.tables import TABLES

TOGETHER = 4096
"""Rows that are objects at most."""


class RowPacker:
    """Gathers rows.

    Args:
        table: the table that they are of.
    """

    def __init__(self, table: str) -> None:
        self._contract = TABLES[table]
        self._rows: list[Row] = []
        self._packed: list[pa.Table] = []

    def add(self, rows: Iterable[Row]) -> None:
        """Takes rows in, one after the other."""
        for row in rows:
            self._rows.append(row)
            if len(self._rows) == TOGETHER:
                self._pack()

    def whole(self) -> pa.Table:
        """All of them so far, in order."""
        self._pack()
        return pa.concat_tables([self._contract.schema.empty_table(), *self._packed])

    def _pack(self) -> None:
        self._packed.append(self._contract.arrow(self._rows))
        self._rows = []
