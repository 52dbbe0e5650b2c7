"""Run named SQL queries on a lake. Each query is a file in `queries/`.

Queries are files, so that users can read them and run them in any DuckDB without this code. Parts that several queries
share are views in `queries/views/`. A query uses a view like a table.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from schemas.tables import TABLES
from storage.lake import Lake

R = TypeVar("R")
FOLDER = Path(__file__).parent / "queries"
VIEWS = tuple(sorted(path.stem for path in (FOLDER / "views").glob("*.sql")))
TOGETHER = 2048
"""Maximum number of rows in a batch of a result."""


@cache
def sql(name: str) -> str:
    """Return the text of a query. Raise FileNotFoundError for an unknown name."""
    return (FOLDER / f"{name}.sql").read_text()


def ask(lake: Lake, name: str, /, versions: Mapping[str, int] | None = None, **parameters: Any) -> pa.Table:
    """Run a query and return its result.

    Args:
        lake: the lake to query.
        name: file name of the query, without `.sql`.
        versions: pinned table versions, as in `Lake.connect`.
        parameters: values for all of the query's `$names`, and no others. An Arrow table is no value: the query reads
            it as a table of this name.
    """
    with stream(lake, name, versions, **parameters) as batches:
        return batches.read_all()


def answers(
    lake: Lake, kind: Callable[..., R], name: str, /, versions: Mapping[str, int] | None = None, **parameters: Any
) -> list[R]:
    """Return the result of a query as objects. The columns of the query are the arguments of `kind`.

    The other arguments are those of `ask`.
    """
    return [kind(**row) for row in ask(lake, name, versions, **parameters).to_pylist()]


@contextmanager
def stream(
    lake: Lake, name: str, /, versions: Mapping[str, int] | None = None, **parameters: Any
) -> Iterator[pa.RecordBatchReader]:
    """Yield a reader of a query's result in batches. The arguments are those of `ask`."""
    with stream_text(lake, sql(name), versions, **parameters) as batches:
        yield batches


@contextmanager
def stream_text(
    lake: Lake, text: str, /, versions: Mapping[str, int] | None = None, **parameters: Any
) -> Iterator[pa.RecordBatchReader]:
    """Run a query given as text, and yield a reader of its result in batches.

    Raises:
        duckdb.Error: the text is not valid SQL, or has a table or column that does not exist.
    """
    with _connected(lake, text, versions) as connection:
        yield _run(connection, text, parameters)


@contextmanager
def session(lake: Lake, *names: str) -> Iterator[Callable[..., pa.Table]]:
    """Yield a function that runs these queries, all on the same versions of the tables.

    Its arguments are the query's name and parameters, as in `ask`.
    """
    with _connected(lake, "\n".join(map(sql, names)), None) as connection:
        yield lambda name, /, **parameters: _run(connection, sql(name), parameters).read_all()


@contextmanager
def _connected(lake: Lake, text: str, versions: Mapping[str, int] | None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with the tables and views that a text reads."""
    tables, views = _read_by(text)
    with lake.connect(tables, versions) as connection:
        for view, selected in views.items():
            connection.execute(f"CREATE VIEW {view} AS {selected}")
        yield connection


def _run(connection: duckdb.DuckDBPyConnection, text: str, parameters: Mapping[str, Any]) -> pa.RecordBatchReader:
    given = {name: value for name, value in parameters.items() if isinstance(value, pa.Table)}
    for name, rows in given.items():
        connection.register(name, rows)
    values = {name: value for name, value in parameters.items() if name not in given}
    return connection.sql(text, params=values).to_arrow_reader(TOGETHER)


@cache
def _read_by(text: str) -> tuple[list[str], dict[str, str]]:
    """Return the tables and the views that a query reads."""
    views = _views(text)
    return _named(TABLES, " ".join([text, *views.values()])), views


def _views(text: str) -> dict[str, str]:
    """Return the views that a query uses, directly or through other views. A view comes after the views that it
    uses."""
    found: dict[str, str] = {}
    for view in _named(VIEWS, text):
        selected = re.sub(r"--.*", "", sql(f"views/{view}"))
        found |= _views(selected.replace(view, "")) | {view: selected}
    return found


def _named(names: Iterable[str], text: str) -> list[str]:
    return [name for name in names if re.search(rf"\b{name}\b", text)]
