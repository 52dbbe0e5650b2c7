"""Compare two data versions at their pinned table versions, in DuckDB and little memory."""

import tempfile
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from operator import add
from pathlib import Path

import pyarrow.parquet as pq

from storage.catalog import ask, stream
from storage.lake import Lake

EXAMPLES = 10
"""Maximum number of trajectories in the result for each change of routes."""
Pins = Mapping[str, int]
"""Table versions by table; a table without an entry did not exist."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Trajectories of one task, or of a family of tasks, in two data versions."""

    a: int
    b: int
    a_trials: int
    """Number of trajectories without an environment failure."""
    b_trials: int
    a_successes: int
    b_successes: int


@dataclass(frozen=True, slots=True)
class ChangedRoute:
    """Trajectories that have different routes in the two data versions."""

    was: str
    now: str
    n: int
    examples: list[str]


@dataclass(frozen=True, slots=True)
class Difference:
    """Numbers of two data versions side by side."""

    rows: dict[str, tuple[int, int]]
    """Number of rows of every table."""
    tasks: dict[str, Counted]
    families: dict[str, Counted]
    flips: list[ChangedRoute]
    judges: dict[str, tuple[int, int]]
    """Number of verdicts by judge."""


def difference(lake: Lake, a: Pins, b: Pins) -> Difference:
    """Compare two data versions.

    Raises:
        LakeError: files of a version were removed. The message has the table and version.
    """
    tables = sorted(a.keys() | b.keys())
    rows = {table: (_rows(lake, table, a), _rows(lake, table, b)) for table in tables}
    tasks: dict[str, Counted] = {}
    families: dict[str, Counted] = {}
    flips: list[ChangedRoute] = []
    with tempfile.TemporaryDirectory() as folder:
        before, after = (_written(lake, pins, Path(folder) / name) for pins, name in ((a, "a"), (b, "b")))
        for row in ask(lake, "version_changes", {}, before=before, after=after, most=EXAMPLES).to_pylist():
            if row["kind"] == "flip":
                flips.append(ChangedRoute(row["was"], row["is_now"], row["a"], row["examples"]))
                continue
            counts = [row[one.name] for one in fields(Counted)]
            tasks[row["name"]] = Counted(*counts)
            known = astuple(families.get(row["family"], Counted(0, 0, 0, 0, 0, 0)))
            families[row["family"]] = Counted(*map(add, known, counts))
    return Difference(rows, tasks, families, flips, _judges(lake, a, b))


def _rows(lake: Lake, table: str, pins: Pins) -> int:
    return lake.count(table, version=pins[table]) if table in pins else 0


def _written(lake: Lake, pins: Pins, path: Path) -> str:
    """Write the trajectories of a data version to a Parquet file in batches, and return its path."""
    with stream(lake, "version_trajectories", pins) as batches, pq.ParquetWriter(path, batches.schema) as file:
        for batch in batches:
            file.write_batch(batch)
    return str(path)


def _judges(lake: Lake, a: Pins, b: Pins) -> dict[str, tuple[int, int]]:
    sides = [
        {row["judge"]: row["verdicts"] for row in ask(lake, "version_judges", pins).to_pylist()} for pins in (a, b)
    ]
    return {
        judge: (sides[0].get(judge, 0), sides[1].get(judge, 0)) for judge in sorted(sides[0].keys() | sides[1].keys())
    }
