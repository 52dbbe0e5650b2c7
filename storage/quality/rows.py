"""Select the rows that the gate checks: one table's rows of an iteration, with facts from other tables.

A query that finds faults between two tables returns few rows or none. Joined to the table's own rows, they make the
columns for the expectations about other tables.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from schemas.table import Expectation, Table
from schemas.tables.quality import QualityResult
from storage.catalog import ask
from storage.lake import Lake
from storage.quality.conditions import quoted

_REFERENCES: dict[str, tuple[Expectation, ...]] = {
    "trajectories": (
        Expectation(
            kind="ExpectColumnPairValuesToBeEqual",
            arguments={"column_A": "n_steps", "column_B": "stored_steps"},
            because="a trajectory without all its steps cannot be replayed",
        ),
    ),
    "steps": tuple(
        Expectation(
            kind="ExpectColumnValuesToBeInSet",
            arguments={"column": f"{column}_known", "value_set": [True]},
            because="a step without its picture cannot be trained on",
        )
        for column in ("screenshot", "next_screenshot")
    ),
    "screenshots": (
        Expectation(
            kind="ExpectColumnValuesToBeInSet",
            arguments={"column": "named_by_content", "value_set": [True]},
            because="a picture under another's name is not the policy's screen, and no training set shows it",
        ),
    ),
}
"""Expectations of one table about another, or about its columns together."""
_FAULTS: dict[str, tuple[str, str]] = {
    "trajectories": (
        "gate_steps",
        "SELECT own.*, coalesce(stored_steps, n_steps) AS stored_steps FROM own LEFT JOIN faults USING (trajectory_id)",
    ),
    "steps": (
        "gate_screenshots",
        "SELECT *, screenshot NOT IN (FROM faults) AS screenshot_known,"
        " next_screenshot NOT IN (FROM faults) AS next_screenshot_known FROM own",
    ),
}
"""The query that finds a table's faults, and the select that joins them (`faults`) to its rows (`own`)."""

_OWN = {"screenshots": ("sha256(png) = sha256 AS named_by_content",)}
"""Further columns for a table's expectations."""


def expectations_of(contract: Table) -> list[Expectation]:
    """Return a table's own expectations and those about other tables."""
    return [*contract.expectations, *_REFERENCES.get(contract.name, ())]


@contextmanager
def rows_of(lake: Lake, contract: Table, iteration: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with the view `rows`: a table's rows of an iteration, or all where it has no iterations.

    Of a picture the view has only the length, and whether its content matches its name.
    """
    query, joined = _FAULTS.get(contract.name, ("", "FROM own"))
    faults = ask(lake, query, iteration=iteration) if query else None
    with lake.connect([contract.name]) as connection:
        where = f" WHERE iteration = {iteration}" if "iteration" in contract.partition_by else ""
        columns = ", ".join([*map(_light, contract.schema), *_OWN.get(contract.name, ())])
        connection.execute(f"CREATE VIEW own AS SELECT {columns} FROM {quoted(contract.name)}{where}")
        if faults is not None:
            connection.register("found", faults)
            connection.execute("CREATE TEMP TABLE faults AS FROM found")
        connection.execute(f"CREATE TEMP VIEW rows AS {joined}")
        yield connection


def _light(field: pa.Field) -> str:
    name = quoted(field.name)
    return f"octet_length({name}) AS {name}" if pa.types.is_binary(field.type) else name


def named_by(contract: Table) -> tuple[str, ...]:
    """Return the columns that identify an offending row: the key, and the row's trajectory."""
    more = ("trajectory_id",) if "trajectory_id" in contract.schema.names else ()
    return tuple(dict.fromkeys([*contract.key, *more]))


def with_trajectories(lake: Lake, result: QualityResult) -> QualityResult:
    """Return the result with the id of a trajectory that shows it next to each picture."""
    examples = json.loads(result.examples)
    pictures = [row["sha256"] for row in examples if row.get("sha256")]
    if not pictures:
        return result
    shown = ask(lake, "gate_shown_by", iteration=result.iteration, screenshots=pictures).to_pylist()
    by = {row["screenshot"]: row["trajectory_id"] for row in shown}
    linked = [{**row, "trajectory_id": by.get(row["sha256"])} for row in examples]
    return result.model_copy(update={"examples": json.dumps(linked, sort_keys=True)})
