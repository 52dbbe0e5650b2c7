"""Table contracts: a row, an Arrow schema derived from it, a key, partitions and expectations as data.

The Arrow schema is read off the row's annotations, so the two cannot disagree; a field that is optional in
the row is nullable in Arrow and no other field is.
"""

import threading
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Annotated, Any, Literal, TypeAlias, Union

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from common.text import Storable

SCHEMA_VERSION = 5
"""Version of all table contracts together.

`flywheel upgrade` brings an older lake up to date; a newer one is refused.
"""

Int32 = Annotated[int, pa.int32()]
Int64 = Annotated[int, pa.int64()]
Float32 = Annotated[float, pa.float32()]
Float64 = Annotated[float, pa.float64()]
Text = Annotated[Storable, pa.string()]
Flag = Annotated[bool, pa.bool_()]
Blob = Annotated[bytes, pa.binary()]
Instant = Annotated[datetime, pa.timestamp("us", tz="UTC")]
TextList = Annotated[list[str], pa.list_(pa.string())]
IntList = Annotated[list[int], pa.list_(pa.int32())]
FloatList = Annotated[list[float], pa.list_(pa.float32())]

Severity = Literal["critical", "warning"]

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
Metrics: TypeAlias = Mapping[str, Json]
"""Values of a stage or a training by open names, kept as JSON."""


class Row(BaseModel):
    """One row of a table."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Expectation(BaseModel):
    """One thing a table is expected to hold: a Great Expectations type, its arguments, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    """The Great Expectations class, for example `ExpectColumnValuesToBeBetween`."""
    arguments: dict[str, Any]
    because: str
    severity: Severity = "critical"

    @property
    def columns(self) -> list[str]:
        """Returns the columns this expectation names."""
        one = [self.arguments["column"]] if "column" in self.arguments else []
        return [*one, *self.arguments.get("column_list", [])]


@dataclass(frozen=True)
class Table:
    """Contract of a table."""

    name: str
    row: type[Row]
    key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    added: Mapping[str, str] = field(default_factory=dict[str, str])
    """Columns that lakes of earlier versions lack, with the SQL expression over the older columns that gives them."""

    @cached_property
    def schema(self) -> pa.Schema:
        """Builds the Arrow schema, with the contract's name and version in its metadata."""
        fields = [_field(name, hint) for name, hint in _hints(self.row).items()]
        return pa.schema(fields, metadata={"flywheel.table": self.name, "flywheel.version": str(SCHEMA_VERSION)})

    def arrow(self, rows: Iterable[Row | Mapping[str, Any]]) -> pa.Table:
        """Converts rows to an Arrow table of this contract.

        Raises:
            pydantic.ValidationError: a row that breaks the contract, naming the field.
        """
        valid = [row if isinstance(row, self.row) else self.row.model_validate(row) for row in rows]
        return pa.Table.from_pylist([row.model_dump() for row in valid], schema=self.schema)


_clock = partial(datetime.now, UTC)
_instants = threading.Lock()
_last = datetime.min.replace(tzinfo=UTC)


def utc_now() -> datetime:
    """Returns the time in UTC, later than every one returned before.

    A clock that is set back therefore makes no old row of the newest one, which is the valid one.
    """
    global _last
    with _instants:
        _last = max(_clock(), _last + timedelta(microseconds=1))
        return _last


def not_before(instant: datetime) -> None:
    """Makes later times later than this instant, the time of something written that counts as older."""
    global _last
    with _instants:
        _last = max(_last, instant)


def not_null(*columns: str, because: str) -> tuple[Expectation, ...]:
    """Expect these columns to hold no nulls."""
    return tuple(
        Expectation(kind="ExpectColumnValuesToNotBeNull", arguments={"column": c}, because=because) for c in columns
    )


def between(
    column: str, low: float | None, high: float | None, because: str, severity: Severity = "critical"
) -> Expectation:
    """Expect a column's values to lie in [low, high]."""
    arguments = {"column": column, "min_value": low, "max_value": high}
    return Expectation(kind="ExpectColumnValuesToBeBetween", arguments=arguments, because=because, severity=severity)


def one_of(column: str, values: Iterable[str], because: str) -> Expectation:
    """Expect a column's values to come from a closed set."""
    arguments = {"column": column, "value_set": sorted(values)}
    return Expectation(kind="ExpectColumnValuesToBeInSet", arguments=arguments, because=because)


def unique(
    columns: tuple[str, ...], because: str = "a key names one row: retries write the same key again"
) -> Expectation:
    """Expect the columns together to name each row once."""
    if len(columns) == 1:
        return Expectation(kind="ExpectColumnValuesToBeUnique", arguments={"column": columns[0]}, because=because)
    return Expectation(
        kind="ExpectCompoundColumnsToBeUnique", arguments={"column_list": list(columns)}, because=because
    )


def matches(column: str, pattern: str, because: str) -> Expectation:
    """Expect a column's values to match a regular expression."""
    return Expectation(
        kind="ExpectColumnValuesToMatchRegex", arguments={"column": column, "regex": pattern}, because=because
    )


def _hints(row: type[Row]) -> dict[str, Any]:
    return typing.get_type_hints(row, include_extras=True)


def _field(name: str, hint: Any) -> pa.Field:
    nullable = False
    if typing.get_origin(hint) in (Union, types.UnionType):
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        nullable, hint = True, options[0]
    if typing.get_origin(hint) is not Annotated:
        hint = Text  # a Literal: a closed set of strings
    kind = next(extra for extra in typing.get_args(hint)[1:] if isinstance(extra, pa.DataType))
    return pa.field(name, kind, nullable=nullable)
