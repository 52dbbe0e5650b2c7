"""Compute the evidence of the curriculum query in Polars and in pandas.

By task, the successes and failures of the policy, older ones counted less, without those in quarantine
(`storage/queries/views/evidence.sql`). Like the query, they skip evidence that counts less than 10^-15.
"""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
import polars as pl
import pyarrow.dataset as pads
from deltalake import DeltaTable

from storage.lake import Lake

Evidence = Mapping[str, tuple[float, float]]
QUARANTINE = "quarantine"
LEAST = 1e-15


def in_polars(lake: Lake, iteration: int, forgetting: float) -> Evidence:
    """By task: successes and failures, in Polars' lazy frames over the same Parquet files."""
    decisions = (
        _scan(lake, "verdicts")
        .filter(pl.col("gate") == "route")
        .group_by("trajectory_id")
        .agg(pl.col("route").sort_by("created_at", "gate_version").last())
        .filter(pl.col("route") == QUARANTINE)
    )
    weight = pl.lit(forgetting).pow(iteration - 1 - pl.col("iteration"))
    counted = (
        _scan(lake, "trajectories")
        .filter(pl.col("iteration") >= _first(iteration, forgetting))
        .filter((pl.col("policy") == "policy") & pl.col("success").is_not_null())
        .join(decisions, on="trajectory_id", how="anti")
        .group_by("task_id")
        .agg(won=weight.filter(pl.col("success")).sum(), lost=weight.filter(~pl.col("success")).sum())
        .collect()
    )
    return {row["task_id"]: (row["won"], row["lost"]) for row in counted.to_dicts()}


def in_pandas(lake: Lake, iteration: int, forgetting: float) -> Evidence:
    """The same in pandas."""
    verdicts = _frame(lake, "verdicts", ["trajectory_id", "gate", "route", "created_at", "gate_version"])
    routes = verdicts[verdicts["gate"] == "route"].sort_values(["created_at", "gate_version"])
    last = routes.groupby("trajectory_id")["route"].last()
    held = set(last[last == QUARANTINE].index)
    counting = pads.field("iteration") >= math.ceil(_first(iteration, forgetting))
    rows = _frame(lake, "trajectories", ["trajectory_id", "task_id", "policy", "success", "iteration"], counting)
    rows = rows[(rows["policy"] == "policy") & rows["success"].notna() & ~rows["trajectory_id"].isin(held)]
    weight = forgetting ** (iteration - 1 - rows["iteration"].astype("float64"))
    won = rows["success"].astype(bool)
    sums: Any = pd.DataFrame(
        {"task_id": rows["task_id"], "won": weight.where(won, 0.0), "lost": weight.where(~won, 0.0)}
    )
    counted = sums.groupby("task_id").sum()
    return {str(task): (float(row["won"]), float(row["lost"])) for task, row in counted.iterrows()}


def _scan(lake: Lake, table: str) -> pl.LazyFrame:
    return pl.scan_parquet(_table(lake, table).file_uris(), hive_partitioning=True)


def _frame(lake: Lake, table: str, columns: list[str], which: pads.Expression | None = None) -> Any:
    dataset: pads.Dataset = _table(lake, table).to_pyarrow_dataset()
    return dataset.to_table(columns=columns, filter=which).to_pandas()  # its stubs know less than pandas does


def _first(iteration: int, forgetting: float) -> float:
    """From which iteration on evidence counts."""
    return iteration - 1 - math.log(LEAST) / math.log(forgetting)


def _table(lake: Lake, table: str) -> DeltaTable:
    return DeltaTable(f"{lake.uri}/tables/{table}")
