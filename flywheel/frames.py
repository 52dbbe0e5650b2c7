"""Make Polars frames of a lake's tables, and summaries of them."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from schemas.failure import LakeError
from schemas.tables import TABLES
from schemas.tables.policy import MEASURES, TRAINING
from storage.lake import Lake as StoredLake
from tasks.shared.status import IterationStatus, VerifiedRate

if TYPE_CHECKING:
    from flywheel.lake import OpenLake

FIXED = "policy, same tasks"
"""Kind of the policy's acceptance rate over tasks that it has in every iteration, with equal weights."""
LATEST = 5
"""Number of trainings that `training` returns by default."""
KINDS: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(("iteration", "n", "trajectories", "step"), pl.Int64),
    **dict.fromkeys(("success", "low", "high", "explorer", "wall_s", "value"), pl.Float64),
    **dict.fromkeys(("policy", "kind", "measure"), pl.String),
    "promoted": pl.Boolean,
}
CURVE = ("iteration", "policy", "success", "low", "high", "n", "explorer", "promoted", "trajectories", "wall_s")
COLLECTED = ("iteration", "kind", "n", "success", "low", "high")
POINTS = ("policy", "step", "measure", "value")
"""Columns of the frame of training measures."""


def rows_of(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> pl.DataFrame:
    """Make a frame with these columns."""
    return pl.DataFrame(list(rows), schema={name: KINDS[name] for name in columns}, orient="row")


def of(table: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """Return an Arrow table as a frame, without a copy."""
    return cast(pl.DataFrame, pl.from_arrow(table))


def scan(lake: StoredLake, name: str, version: int | None) -> pl.LazyFrame:
    """Scan a table, as `OpenLake.table` does."""
    if name not in TABLES:
        raise LakeError(f"There is no table `{name}`.", f"The tables are {', '.join(sorted(TABLES))}.")
    schema: pa.Schema = TABLES[name].schema

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        needed = columns if columns is not None else schema.names
        names = dict.fromkeys([*needed, *(predicate.meta.root_names() if predicate is not None else ())])
        left = rows
        for batch in lake.batches(name, list(names), version=version):
            frame = of(batch)
            frame = (frame if predicate is None else frame.filter(predicate)).select(needed)
            yield frame if left is None else frame.head(left)
            if left is not None and (left := left - frame.height) <= 0:
                return

    return register_io_source(read, schema=of(schema.empty_table()).schema)


def curve(rows: Iterable[IterationStatus]) -> pl.DataFrame:
    """Return success by iteration, as `OpenLake.curve` does."""
    return rows_of(
        (
            (row.iteration, row.policy, row.success, *(row.ci or (None, None)), row.n, row.explorer, row.promoted,
             row.trajectories, row.wall_s)
            for row in rows
        ),
        CURVE,
    )  # fmt: skip


def collected(rows: Sequence[VerifiedRate]) -> pl.DataFrame:
    """Return the shares of collected trajectories, as `OpenLake.collected` does."""
    own = [(row.iteration, row.kind, row.at.n, row.at.mean, row.at.low, row.at.high) for row in rows]
    mixes = [(row.iteration, row.fixed_mix) for row in rows if row.kind == "policy" and row.fixed_mix]
    fixed = [(iteration, FIXED, mix.n, mix.rate, *mix.ci) for iteration, mix in mixes]
    return rows_of(own + fixed, COLLECTED)


def by_task(lake: "OpenLake") -> pl.DataFrame:
    """Return success by task and policy, as `OpenLake.by_task` does."""
    columns = ("task_id", "suite", "success", "reward", "n", "iteration", "policy_version")
    measured = lake.query("tasks").filter(pl.col("success").is_not_null()).select(columns)
    explored = lake.sql("""
        SELECT
            task_id, suite, avg(success::INTEGER) AS success, avg(coalesce(reward, 0)) AS reward, count(*) AS n,
            NULL::INTEGER AS iteration, NULL::VARCHAR AS policy_version
        FROM evaluation_outcomes WHERE actor = 'explorer' AND suite = 'suite' AND quoted
        GROUP BY task_id, suite ORDER BY task_id""")
    return pl.concat([explored, measured], how="vertical_relaxed")


def training(lake: "OpenLake", policies: Sequence[str], points: int) -> pl.DataFrame:
    """Return measures of trainings, as `OpenLake.training` does."""
    table = lake.table(TRAINING.name)
    if not policies:
        ends = table.group_by("policy_version").agg(pl.col("written_at").max()).sort("written_at").tail(LATEST)
        policies = ends.collect()["policy_version"].to_list()
    lines = pl.Enum(policies)
    ages = pl.int_range(pl.len()).reverse().over("policy_version")
    every = (pl.len().over("policy_version") + points - 1) // points
    rows = (
        table.filter(pl.col("policy_version").is_in(list(policies)))
        .sort(pl.col("policy_version").cast(lines), "step")
        .filter(ages % every == 0)
        .collect()
    )
    measured = [
        (row["policy_version"], row["step"], name, value)
        for row in rows.iter_rows(named=True)
        for name, value in ({name: row[name] for name in MEASURES} | json.loads(row["other"])).items()
        if value is not None
    ]
    return rows_of(measured, POINTS)
