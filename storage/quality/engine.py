"""Great Expectations over DuckDB: its own pandas engine, with each measurement as a query instead of a frame.

Great Expectations 1.24 has no engine for DuckDB (its SQLAlchemy one breaks on it), and its pandas engine needs the
whole table in memory. An expectation asks its engine for metrics: the number of rows, the number that break it, and
which those are. This engine answers in SQL, with all counts of a table in one pass. Suite, judgement, results and Data
Docs are Great Expectations' own, and memory holds only counts and a few examples. Importing this module imports Great
Expectations, which takes seconds.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal

import duckdb
import great_expectations as gx
import pandas as pd
from great_expectations.datasource.fluent.pandas_datasource import PandasDatasource
from great_expectations.exceptions.exceptions import MetricResolutionError
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.validator.metric_configuration import MetricConfiguration
from typing_extensions import override

from storage.quality.conditions import condition, considered, key_columns, quoted

ROWS = "rows"
"""Name of the view that an engine queries."""


class DuckEngine(PandasExecutionEngine):
    """Answers metrics about the view `rows` of a connection.

    Attributes:
        connection: the connection with that view.
        key: columns that name a row.
        examples: number of offending rows that are named.
        broken: number of offending rows by condition, as far as it is known.
    """

    connection: duckdb.DuckDBPyConnection
    key: tuple[str, ...]
    examples: int
    broken: dict[str, int]

    @override
    def resolve_metrics(
        self,
        metrics_to_resolve: Iterable[MetricConfiguration],
        metrics: dict[Any, Any] | None = None,
        runtime_configuration: dict[str, Any] | None = None,
    ) -> dict[Any, Any]:
        """Return the values of these metrics by their ids; raises MetricResolutionError, as any engine does."""
        asked = list(metrics_to_resolve)
        counts = {metric: sql for metric in asked if (sql := self._tried(metric, _count)) is not None}
        found = {metric.id: value for metric, value in self._counted(counts).items()}
        self.broken |= {_broken_by(metric): found[metric.id] for metric in counts if _is_broken_count(metric)}
        for metric in sorted(asked, key=_is_broken_count, reverse=True):
            if metric not in counts:
                found[metric.id] = self._tried(metric, self._answer)
        return found

    def _counted(self, counts: Mapping[MetricConfiguration, str]) -> dict[MetricConfiguration, int]:
        """Return all counts from one pass; each from its own query where one of them breaks the common one."""
        if not counts:
            return {}
        try:
            row = self.connection.execute(f"SELECT {', '.join(counts.values())} FROM {ROWS}").fetchone()
        except duckdb.Error as error:
            if len(counts) == 1:
                raise MetricResolutionError(message=str(error), failed_metrics=tuple(counts)) from error
            return {metric: self._counted({metric: sql})[metric] for metric, sql in counts.items()}
        assert row is not None
        return dict(zip(counts, row, strict=True))

    def _tried(self, metric: MetricConfiguration, answer: Any) -> Any:
        try:
            return answer(metric)
        except Exception as error:  # whatever the error is, only this metric's expectation is in doubt
            raise MetricResolutionError(message=str(error), failed_metrics=(metric,)) from error

    def _answer(self, metric: MetricConfiguration) -> Any:
        name, _, what = metric.metric_name.rpartition(".")
        if metric.metric_name == "table.columns":
            return [column for column, _ in self._columns()]
        if metric.metric_name == "table.column_types":
            return [{"name": column, "type": kind} for column, kind in self._columns()]
        if what == "unexpected_count":
            self.broken[_broken_by(metric)] = self._repeated(metric)
            return self.broken[_broken_by(metric)]
        if what == "unexpected_values":
            domain = metric.metric_domain_kwargs
            columns = domain.get("column_list") or [
                domain[c] for c in ("column", "column_A", "column_B") if c in domain
            ]
            rows = self._unexpected(name, metric, columns)
            if "column" in domain:
                return [row[0] for row in rows]
            return [dict(zip(columns, row, strict=True)) if "column_list" in domain else row for row in rows]
        if what == "unexpected_index_list":
            return [dict(zip(self.key, row, strict=True)) for row in self._unexpected(name, metric, self.key)]
        if what in ("condition", "unexpected_index_query"):
            return None
        raise NotImplementedError(f"The gate has no SQL for `{metric.metric_name}`.")

    def _columns(self) -> list[tuple[str, str]]:
        return [(row[0], row[1]) for row in self.connection.execute(f"DESCRIBE {ROWS}").fetchall()]

    def _repeated(self, metric: MetricConfiguration) -> int:
        """Count the rows whose key another row has too: hashes first, as few or none are equal."""
        domain = metric.metric_domain_kwargs
        columns = key_columns("compound_columns.unique", domain) or [domain["column"]]
        key, hashed = ", ".join(map(quoted, columns)), _hash(columns)
        alike = f"SELECT {hashed} FROM {ROWS} GROUP BY {hashed} HAVING count(*) > 1"
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE alike AS {alike}")
        if not self._one("SELECT count(*) FROM alike"):
            return 0
        there = considered(domain) if "column_list" in domain else f"{key} IS NOT NULL"
        near = f"FROM {ROWS} WHERE {hashed} IN (FROM alike) AND {there}"
        return self._one(
            f"SELECT coalesce(sum(found), 0)::BIGINT FROM "
            f"(SELECT count(*) AS found {near} GROUP BY {key} HAVING count(*) > 1)"
        )

    def _unexpected(self, name: str, metric: MetricConfiguration, columns: Iterable[str]) -> list[tuple[Any, ...]]:
        """Return these columns of the first rows, by key, that break a condition."""
        broken = _broken_by(metric)
        if self.broken.get(broken) == 0:
            return []
        word = "QUALIFY" if key_columns(name, metric.metric_domain_kwargs) else "WHERE"
        listed, order = (", ".join(map(quoted, names)) for names in (columns, self.key))
        return self.connection.execute(
            f"SELECT {listed} FROM {ROWS} {word} {broken} ORDER BY {order} LIMIT {self.examples}"
        ).fetchall()

    def _one(self, query: str) -> int:
        row = self.connection.execute(query).fetchone()
        assert row is not None
        return row[0]


def _count(metric: MetricConfiguration) -> str | None:
    """Return a metric's SQL aggregate, if one pass can compute it; else None."""
    name, _, what = metric.metric_name.rpartition(".")
    domain, values = metric.metric_domain_kwargs, metric.metric_value_kwargs
    if metric.metric_name == "table.row_count":
        return "count(*)"
    if what == "filtered_row_count":
        return f"count(*) FILTER ({considered(domain)})"
    if what == "unexpected_count" and not key_columns(name, domain):
        return f"count(*) FILTER ({condition(name, domain, values)})"
    return None


def _broken_by(metric: MetricConfiguration) -> str:
    """Return a metric's SQL condition."""
    name = metric.metric_name.rpartition(".")[0]
    return condition(name, metric.metric_domain_kwargs, metric.metric_value_kwargs)


def _is_broken_count(metric: MetricConfiguration) -> bool:
    return metric.metric_name.endswith(".unexpected_count")


def _hash(columns: Iterable[str]) -> str:
    return f"hash({', '.join(map(quoted, columns))})"


class DuckSource(PandasDatasource):
    """Data source whose engine is `DuckEngine`."""

    type: Literal["duck"] = "duck"  # pyright: ignore[reportIncompatibleVariableOverride] (how Great Expectations has it)

    @property
    @override
    def execution_engine_type(self) -> Any:
        """Class of its engine."""
        return DuckEngine


def validated(
    context: Any, suite: gx.ExpectationSuite, connection: duckdb.DuckDBPyConnection, key: tuple[str, ...], examples: int
) -> list[Any]:
    """Validate the view `rows`, and return one result per expectation; the context keeps them for its pages."""
    source = context.data_sources.add_or_update_duck(DuckSource.parse_obj({"name": suite.name}))
    asset = source.add_dataframe_asset(suite.name)
    engine = source.get_execution_engine()
    engine.connection, engine.key, engine.examples, engine.broken = connection, key, examples, {}
    batch = asset.add_batch_definition_whole_dataframe("iteration")
    definition = gx.ValidationDefinition(name=suite.name, data=batch, suite=context.suites.add(suite))
    context.validation_definitions.add(definition)
    run = partial(definition.run, batch_parameters={"dataframe": pd.DataFrame()})
    found = run(result_format={"result_format": "BASIC", "partial_unexpected_count": examples})
    if not found.success:  # only then ask for the rows: that doubles the metrics
        rows = {"unexpected_index_column_names": list(key), "return_unexpected_index_query": False}
        found = run(result_format={"result_format": "COMPLETE", "partial_unexpected_count": examples, **rows})
    return found.results
