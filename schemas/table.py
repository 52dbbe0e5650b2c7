"""Define contracts of tables: a row class, an Arrow schema, a key, partitions and expectations.

The Arrow schema is derived from the annotations of the row class. Only optional fields of the row are nullable in
Arrow.
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

SCHEMA_VERSION = 6
"""Version of all table contracts together.

`flywheel upgrade` upgrades a lake of an older version. A lake of a newer version is refused.
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
"""JSON values of a stage or a training, by name."""


class Row(BaseModel):
    """One row of a table."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expectation of a table: a class of Great Expectations, its arguments, and a reason."""

    kind: str
    """Class of Great Expectations, for example `ExpectColumnValuesToBeBetween`."""
    arguments: dict[str, Any]
    because: str
    severity: Severity = "critical"

    @property
    def columns(self) -> list[str]:
        """Returns the columns that the expectation checks."""
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
    """Columns that lakes of earlier versions lack, each with an SQL expression over the older columns."""

    @cached_property
    def schema(self) -> pa.Schema:
        """Builds the Arrow schema. Its metadata has the contract's name and version."""
        hints = typing.get_type_hints(self.row, include_extras=True)
        fields = [_field(name, hint) for name, hint in hints.items()]
        return pa.schema(fields, metadata={"flywheel.table": self.name, "flywheel.version": str(SCHEMA_VERSION)})

    def arrow(self, rows: Iterable[Row | Mapping[str, Any]]) -> pa.Table:
        """Converts rows to an Arrow table of this contract.

        Raises:
            pydantic.ValidationError: a row does not fit the contract. The error has the field.
        """
        valid = [row if isinstance(row, self.row) else self.row.model_validate(row) for row in rows]
        return pa.Table.from_pylist([row.model_dump() for row in valid], schema=self.schema)


_clock = partial(datetime.now, UTC)
_instants = threading.Lock()
_last = datetime.min.replace(tzinfo=UTC)


def utc_now() -> datetime:
    """Returns the current time in UTC, always later than any time that was returned before.

    The newest row of a kind is the valid row. If the clock is set back, a newer row still has a later time.
    """
    global _last
    with _instants:
        _last = max(_clock(), _last + timedelta(microseconds=1))
        return _last


def not_before(instant: datetime) -> None:
    """Makes all further times of `utc_now` later than a given time, such as that of a stored row."""
    global _last
    with _instants:
        _last = max(_last, instant)


def not_null(*columns: str, because: str) -> tuple[Expectation, ...]:
    """Expect no null in these columns."""
    return tuple(
        Expectation(kind="ExpectColumnValuesToNotBeNull", arguments={"column": c}, because=because) for c in columns
    )


def between(
    column: str, low: float | None, high: float | None, because: str, severity: Severity = "critical"
) -> Expectation:
    """Expect a column's values to be in [low, high]."""
    arguments = {"column": column, "min_value": low, "max_value": high}
    return Expectation(kind="ExpectColumnValuesToBeBetween", arguments=arguments, because=because, severity=severity)


def one_of(column: str, values: Iterable[str], because: str) -> Expectation:
    """Expect a column's values to be from a closed set."""
    arguments = {"column": column, "value_set": sorted(values)}
    return Expectation(kind="ExpectColumnValuesToBeInSet", arguments=arguments, because=because)


def unique(
    columns: tuple[str, ...], because: str = "a key names one row: retries write the same key again"
) -> Expectation:
    """Expect the columns together to have different values in each row."""
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


def _field(name: str, hint: Any) -> pa.Field:
    nullable = False
    if typing.get_origin(hint) in (Union, types.UnionType):
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        nullable, hint = True, options[0]
    if typing.get_origin(hint) is not Annotated:
        hint = Text  # a Literal: a closed set of strings
    kind = next(extra for extra in typing.get_args(hint)[1:] if isinstance(extra, pa.DataType))
    return pa.field(name, kind, nullable=nullable)
