"""Run Great Expectations on a DuckDB connection, through its SQL engine.

Great Expectations makes the suites, results and pages. Only counts and a few examples are in memory. Importing this
module imports Great Expectations, which takes seconds.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Literal

import duckdb
import great_expectations as gx
import great_expectations.expectations as gxe
import sqlalchemy as sa
from duckdb_engine import ConnectionWrapper
from great_expectations.data_context.types import base
from great_expectations.datasource.fluent.sql_datasource import SQLDatasource
from great_expectations.execution_engine.sqlalchemy_execution_engine import SqlAlchemyExecutionEngine
from great_expectations.expectations.metrics.map_metric_provider.multicolumn_map_metric_provider import (
    MulticolumnMapMetricProvider,
)
from great_expectations.expectations.metrics.metric_provider import MetricProvider, metric_value
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.view.view import DefaultJinjaPageView
from typing_extensions import override

from schemas.table import Expectation

_VIEW = DefaultJinjaPageView()
"""View of result pages. One instance is kept, because it compiles its templates."""


class DuckEngine(SqlAlchemyExecutionEngine):
    """SQL engine on one DuckDB connection. It keeps the connection, because results end with their connection."""

    def open(self, connection: duckdb.DuckDBPyConnection, key: Sequence[str]) -> None:
        """Use a connection for all further queries, and order examples by the columns of the key."""
        self._key = key
        pool = {"creator": lambda: ConnectionWrapper(connection), "poolclass": sa.StaticPool}
        self.engine = sa.create_engine("duckdb://", **pool)
        self._connection = self.engine.connect()
        self.dialect_module = SimpleNamespace(DremioDialect=None)  # DuckDB has `regexp_matches`

    @contextmanager
    @override
    def get_connection(self) -> Iterator[Any]:
        """Yield the connection and leave it open. A failed query does not affect the next query."""
        assert self._connection is not None
        self._connection.rollback()
        yield self._connection

    @override
    def execute_query(self, query: Any) -> Any:
        """Run a query. A query for a limited number of rows returns the first rows by key."""
        limited = isinstance(query, sa.Select) and query._limit_clause is not None
        if limited and not any(list(source.c) for source in query.get_final_froms()):
            query = query.order_by(*map(sa.column, self._key))
        return super().execute_query(query)


class RepeatedKeys(MetricProvider):
    """Metric: number of rows whose key another row also has, in one pass over the key's columns."""

    metric_name = "compound_columns.unique.unexpected_count"
    domain_keys = MulticolumnMapMetricProvider.condition_domain_keys

    @staticmethod
    @metric_value(engine=DuckEngine)
    def _count(execution_engine: DuckEngine, metric_domain_kwargs: dict[str, Any], **_: Any) -> int:
        names = [f'"{column}"' for column in metric_domain_kwargs["column_list"]]
        there = " OR ".join(f"{name} IS NOT NULL" for name in names)
        found = f"SELECT count(*) AS found FROM rows WHERE {there} GROUP BY {', '.join(names)} HAVING count(*) > 1"
        return execution_engine.execute_query(sa.text(f"SELECT coalesce(sum(found), 0) FROM ({found})")).scalar_one()


class DuckSource(SQLDatasource):
    """Data source whose engine is `DuckEngine`."""

    type: Literal["duck"] = "duck"  # pyright: ignore[reportIncompatibleVariableOverride] (how Great Expectations has it)

    @property
    @override
    def execution_engine_type(self) -> Any:
        """Class of the engine."""
        return DuckEngine


def check(expectation: Expectation, name: str) -> Any:
    """Return the object of Great Expectations for an expectation."""
    values = expectation.arguments
    if "min_value" in values and values.get("max_value") is None:
        values = {**values, "max_value": math.inf}  # excludes NaN, which DuckDB sorts above all numbers
    kind = getattr(gxe, expectation.kind)
    return kind(**values, severity=expectation.severity, notes=expectation.because, meta={"name": name})


def new_context() -> Any:
    """Return an in-memory context of Great Expectations, without analytics and progress bars."""
    config = base.DataContextConfig(
        analytics_enabled=False,
        progress_bars=base.ProgressBarsConfig(globally=False),
        store_backend_defaults=base.InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
    )
    return gx.get_context(project_config=config, mode="ephemeral")


def validated(
    context: Any, name: str, checks: list[Any], connection: duckdb.DuckDBPyConnection, key: Sequence[str], examples: int
) -> Any:
    """Validate the view `rows`, and return the result of Great Expectations.

    Args:
        context: a context of Great Expectations.
        name: name of the rows in the result.
        checks: expectations, made by `check`.
        connection: the connection with the view.
        key: columns that identify a row.
        examples: maximum number of offending rows in the result, the first by key.
    """
    source = context.data_sources.add_or_update_duck(
        DuckSource.parse_obj({"name": name, "connection_string": "duckdb://"})
    )
    source.get_execution_engine().open(connection, key)
    asset = source.add_query_asset(name, "SELECT * FROM rows")
    batch = asset.add_batch_definition_whole_table("iteration").get_batch()
    suite = gx.ExpectationSuite(name=name, expectations=checks)
    found = batch.validate(suite, result_format={"result_format": "BASIC", "partial_unexpected_count": 0})
    if found.success:
        return found
    # rows are queried only for failed checks, because this doubles the queries
    rows = {"unexpected_index_column_names": list(key), "return_unexpected_index_query": False}
    return batch.validate(
        suite, result_format={"result_format": "COMPLETE", "partial_unexpected_count": examples, **rows}
    )


def page_of(result: Any) -> str:
    """Return the HTML page of Great Expectations for a result, with links to other hosts.

    The page has its statistics and a section for each column. The sidebar is left out, because it needs scripts, and
    so are the collapsed tables, because they describe the temporary data source.
    """
    document = ValidationResultsPageRenderer().render(result)
    for section in document.sections:
        section.content_blocks = [one for one in section.content_blocks if one.content_block_type != "collapse"]
    return _VIEW.render(document, "page_minimal.j2")
