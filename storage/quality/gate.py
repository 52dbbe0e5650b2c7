"""Run the quality gate: Great Expectations checks the contracts' expectations on the rows of one iteration.

Great Expectations reports bad data and failed checks alike as `success: false`. A result of this module has `error` set
if the check itself failed.

The gate checks the rows of one table and one iteration. For expectations about other tables, a query finds the faulty
rows, and the gate joins its result to the table's rows as further columns.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from schemas.table import Expectation, Table
from schemas.tables import TABLES
from schemas.tables.quality import QualityResult
from storage.catalog import ask
from storage.lake import Lake
from storage.quality.docs import write_docs

EXAMPLES = 10
"""Maximum number of offending keys in a result."""
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
        for column in ("screenshot", "next_screenshot", "frames")
    ),
    "screenshots": (
        Expectation(
            kind="ExpectColumnValuesToBeInSet",
            arguments={"column": "named_by_content", "value_set": [True]},
            because="a picture under another's name is not the policy's screen, and no training set shows it",
        ),
    ),
}
"""Expectations about two tables, or about several columns of one table."""
_FAULTS: dict[str, tuple[str, str]] = {
    "trajectories": (
        "gate_steps",
        "SELECT own.*, coalesce(stored_steps, n_steps) AS stored_steps FROM own LEFT JOIN faults USING (trajectory_id)",
    ),
    "steps": (
        "gate_screenshots",
        "SELECT *, screenshot NOT IN (FROM faults) AS screenshot_known,"
        " next_screenshot NOT IN (FROM faults) AS next_screenshot_known,"
        " NOT list_has_any(frames, (SELECT coalesce(list(sha256), []) FROM faults)) AS frames_known FROM own",
    ),
}
"""By table: the query that finds its faults, and the select that joins the faults (`faults`) to its rows (`own`)."""

_OWN = {"screenshots": ("sha256(png) = sha256 AS named_by_content",)}
"""Further columns for a table's expectations."""


def run_gate(
    lake: Lake,
    iteration: int,
    tables: Iterable[str],
    docs: Path | None,
    keep: int = 3,
    others: Sequence[QualityResult] = (),
) -> list[QualityResult]:
    """Return one result for each expectation of the tables, and the other results. The lake does not change.

    A table without rows of the iteration fulfils all expectations, and Great Expectations does not run on it.

    Args:
        lake: the lake with the tables.
        iteration: iteration of the checked rows; tables that are not partitioned by iteration are checked whole.
        tables: names of the tables.
        docs: parent folder of the Data Docs (`iteration-NNNN/`, or `import-NNNN/` for an import); None for no docs.
        keep: number of iterations whose Data Docs are kept.
        others: results of checks without Great Expectations, which the index of the Data Docs counts too.
    """
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    from storage.quality import engine  # imports Great Expectations, which takes seconds

    context, pages = engine.new_context(), dict[str, str]()
    results: list[QualityResult] = []
    for contract in [TABLES[name] for name in tables]:
        expectations = expectations_of(contract)
        try:
            found = _validated(context, lake, contract, expectations, iteration)
            if found is not None and docs is not None:
                pages[contract.name] = engine.page_of(found)
            by_name = {each.expectation_config.meta["name"]: each for each in found.results} if found else {}
            results += [_result(contract, iteration, each, by_name.get(name_of(each))) for each in expectations]
        except Exception as error:  # an error of a check is not a result about the data
            text = f"{type(error).__name__}: {error}"
            results += [_result(contract, iteration, each, None, text) for each in expectations]
    results += others
    if docs is not None:
        write_docs(pages, docs, results, keep)
    return [with_trajectories(lake, result) for result in results]


def name_of(expectation: Expectation) -> str:
    """Return the name of an expectation in results: its kind and its columns."""
    values = expectation.arguments
    columns = [*expectation.columns, *(values[side] for side in ("column_A", "column_B") if side in values)]
    return f"{expectation.kind}({', '.join(columns)})"


def _validated(context: Any, lake: Lake, contract: Table, expectations: list[Expectation], iteration: int) -> Any:
    """Return the result of Great Expectations for a table; None if the table has no rows."""
    from storage.quality import engine

    checks = [engine.check(expectation, name_of(expectation)) for expectation in expectations]
    with rows_of(lake, contract, iteration) as connection:
        if connection.execute("FROM rows LIMIT 1").fetchone() is None:
            return None
        return engine.validated(context, contract.name, checks, connection, named_by(contract), EXAMPLES)


def _result(
    contract: Table, iteration: int, expectation: Expectation, found: Any, error: str | None = None
) -> QualityResult:
    error = _exception(found.exception_info) if found else error
    seen = (found.result if found else None) or {}
    unexpected = int(seen.get("unexpected_count") or 0)
    return QualityResult(
        iteration=iteration,
        table=contract.name,
        expectation=name_of(expectation),
        severity=expectation.severity,
        success=error is None and (found is None or bool(found.success)),
        observed=f"{unexpected} of {seen.get('element_count', 0)} unexpected" if not error else "the check broke",
        unexpected=unexpected,
        examples=json.dumps(offending(seen, named_by(contract)), sort_keys=True, default=str),
        error=error,
        because=expectation.because,
        value=None if error else unexpected / max(1, seen.get("element_count", 0)),
    )


def offending(result: Mapping[str, Any], key: Sequence[str]) -> list[dict[str, Any]]:
    """Return the keys of the first offending rows of an expectation's result.

    For a key of several columns, Great Expectations reports the repeated keys instead of rows.
    """
    rows = result.get("unexpected_index_list") or result.get("unexpected_list") or ()
    named = [{name: row.get(name) for name in key} for row in rows if isinstance(row, dict)]
    return sorted(named, key=lambda row: [(value is None, value) for value in row.values()])[:EXAMPLES]


def _exception(info: Mapping[str, Any] | None) -> str | None:
    """Return the error of a check, or None. `info` is one record, or one record per metric."""
    info = info or {}
    records = [info] if "raised_exception" in info else [value for value in info.values() if isinstance(value, dict)]
    raised = [str(record.get("exception_message")) for record in records if record.get("raised_exception")]
    return "; ".join(raised) or None


def expectations_of(contract: Table) -> list[Expectation]:
    """Return the expectations of a table, including expectations about other tables."""
    return [*contract.expectations, *_REFERENCES.get(contract.name, ())]


@contextmanager
def rows_of(lake: Lake, contract: Table, iteration: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with the view `rows`: the rows of an iteration, or all rows of a table without iterations.

    For a picture, the view has only its length, and whether its content matches its name.
    """
    query, joined = _FAULTS.get(contract.name, ("", "FROM own"))
    faults = ask(lake, query, iteration=iteration) if query else None
    with lake.connect([contract.name]) as connection:
        where = f" WHERE iteration = {iteration}" if "iteration" in contract.partition_by else ""
        columns = ", ".join([*map(_light, contract.schema), *_OWN.get(contract.name, ())])
        connection.execute(f'CREATE VIEW own AS SELECT {columns} FROM "{contract.name}"{where}')
        if faults is not None:
            connection.register("found", faults)
            connection.execute("CREATE TEMP TABLE faults AS FROM found")
        connection.execute(f"CREATE TEMP VIEW rows AS {joined}")
        yield connection


def _light(field: pa.Field) -> str:
    name = f'"{field.name}"'
    return f"octet_length({name}) AS {name}" if pa.types.is_binary(field.type) else name


def named_by(contract: Table) -> tuple[str, ...]:
    """Return the columns that identify an offending row: the key and the trajectory."""
    more = ("trajectory_id",) if "trajectory_id" in contract.schema.names else ()
    return tuple(dict.fromkeys([*contract.key, *more]))


def with_trajectories(lake: Lake, result: QualityResult) -> QualityResult:
    """Return the result with the id of a trajectory next to each screenshot, if a trajectory contains it."""
    examples = json.loads(result.examples)
    pictures = [row["sha256"] for row in examples if row.get("sha256")]
    if not pictures:
        return result
    shown = ask(lake, "gate_shown_by", iteration=result.iteration, screenshots=pictures).to_pylist()
    by = {row["screenshot"]: row["trajectory_id"] for row in shown}
    linked = [{**row, "trajectory_id": by.get(row["sha256"])} for row in examples]
    return result.model_copy(update={"examples": json.dumps(linked, sort_keys=True)})
