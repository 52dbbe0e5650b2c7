"""Run the product's named SQL queries on a lake; each is a file in `queries/`.

SQL stays in files of its own, so that a user can read it, and run it in any DuckDB, without this code. Parts that
several queries share are views in `queries/views/`; a query names them like tables.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

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
    """Return the text of a query; raise FileNotFoundError for an unknown name."""
    return (FOLDER / f"{name}.sql").read_text()


def ask(lake: Lake, name: str, versions: Mapping[str, int] | None = None, **parameters: Any) -> pa.Table:
    """Run a query and return its result.

    Args:
        lake: the lake to query.
        name: the query's file name without `.sql`.
        versions: pinned table versions, as in `Lake.connect`.
        parameters: values for the query's `$names`; each must be used and none may be missing.
    """
    with stream(lake, name, versions, **parameters) as batches:
        return batches.read_all()


def answers(
    lake: Lake, kind: Callable[..., R], name: str, versions: Mapping[str, int] | None = None, **parameters: Any
) -> list[R]:
    """Return a query's result as typed rows of a `kind` whose fields are the query's columns; otherwise as `ask`."""
    return [kind(**row) for row in ask(lake, name, versions, **parameters).to_pylist()]


@contextmanager
def stream(
    lake: Lake, name: str, versions: Mapping[str, int] | None = None, **parameters: Any
) -> Iterator[pa.RecordBatchReader]:
    """Yield a reader of a query's result, batch by batch while it is open; arguments as in `ask`."""
    with stream_text(lake, sql(name), versions, **parameters) as batches:
        yield batches


@contextmanager
def stream_text(
    lake: Lake, text: str, versions: Mapping[str, int] | None = None, **parameters: Any
) -> Iterator[pa.RecordBatchReader]:
    """Run a query given as text and yield its result batch by batch; the tables and views that it names exist.

    Raises:
        duckdb.Error: the text is not valid SQL, or names a table or column that does not exist.
    """
    views = _views(text)
    with lake.connect(_named(TABLES, " ".join([text, *views.values()])), versions) as connection:
        for view, selected in views.items():
            connection.execute(f"CREATE VIEW {view} AS {selected}")
        yield connection.sql(text, params=parameters).to_arrow_reader(TOGETHER)


def _views(text: str) -> dict[str, str]:
    """Return the views that a query names, directly or through other views, each after those it depends on."""
    found: dict[str, str] = {}
    for view in _named(VIEWS, text):
        selected = re.sub(r"--.*", "", sql(f"views/{view}"))
        found |= _views(selected.replace(view, "")) | {view: selected}
    return found


def _named(names: Iterable[str], text: str) -> list[str]:
    return [name for name in names if re.search(rf"\b{name}\b", text)]
