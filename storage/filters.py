"""Convert conditions on rows to Arrow expressions, Delta predicates and DuckDB views."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

from schemas.table import Table

Where = Mapping[str, Any] | pads.Expression
"""Values by column (a list means any of them, None means null), or an Arrow expression."""


def expression(where: Where | None) -> pads.Expression | None:
    """Return the Arrow expression of a condition; None without a condition."""
    if where is None or isinstance(where, pads.Expression):
        return where
    whole: pads.Expression | None = None
    for name, value in where.items():
        column = pads.field(name)
        one = column.is_null() if value is None else column == value
        if isinstance(value, list | tuple | set | frozenset):
            one = column.isin(list(value)) if value else pads.scalar(False)
        whole = one if whole is None else whole & one
    return whole


def quoted(texts: Iterable[str]) -> str:
    """Return texts as SQL literals, separated by commas."""
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)


def partitions(contract: Table, rows: pa.Table) -> dict[str, list[Any]]:
    """Return the values in the rows' partition columns."""
    return {name: sorted(set(rows[name].to_pylist())) for name in contract.partition_by}


def predicate(touched: Mapping[str, list[Any]]) -> str | None:
    """Return the SQL condition for these partitions; None for a table without partitions."""
    parts = [f"{name} IN ({', '.join(map(str, values))})" for name, values in touched.items()]
    return " AND ".join(parts) or None


def columns(contract: Table, there: Collection[str]) -> str:
    """Return the columns of a view over a table version that has the columns `there`. Missing columns are computed."""
    names = contract.schema.names
    return ", ".join(f'"{name}"' if name in there else f'{contract.added[name]} AS "{name}"' for name in names)


def view(contract: Table, files: Sequence[str], there: Collection[str]) -> str:
    """Return the DuckDB statement that makes a view over a table's Parquet files, which have the columns `there`.

    All files of a version have the same columns, because an upgrade rewrites the table. DuckDB therefore does not need
    to open each file to find its columns. With a thousand iterations, this would take most of a query's time.
    """
    types = ", ".join(f"'{name}': INTEGER" for name in contract.partition_by)
    hive = f", hive_partitioning = true, hive_types = {{{types}}}" if types else ""
    source = f"read_parquet([{quoted(files)}]{hive})"
    return f'CREATE VIEW "{contract.name}" AS SELECT {columns(contract, there)} FROM {source}'
