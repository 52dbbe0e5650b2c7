"""Prevent that rows of forgotten trajectories are written again."""

import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.dataset as pads

from schemas.table import Table
from schemas.tables.forgotten import TABLE as FORGOTTEN

FRESH_S = 60.0
"""Maximum seconds until a running process notices that another process forgot data. A new process notices at once."""
COLUMN = "trajectory_id"


class Tombstones:
    """Ids of the trajectories that a lake has forgotten.

    Args:
        read: returns the current ids from the lake.
    """

    def __init__(self, read: Callable[[], set[str]]) -> None:
        self._read = read
        self._known: set[str] = set()
        self._asked = float("-inf")

    def without(self, contract: Table, rows: pa.Table) -> pa.Table:
        """Return the rows of a table without rows of forgotten trajectories."""
        if contract.name == FORGOTTEN.name:
            self._asked = float("-inf")
            return rows
        if COLUMN not in contract.schema.names or not rows.num_rows:
            return rows
        if time.monotonic() - self._asked > FRESH_S:
            self._known, self._asked = self._read(), time.monotonic()
        if not self._known:
            return rows
        return rows.filter(~pads.field(COLUMN).isin(pa.array(sorted(self._known), pa.string())))
