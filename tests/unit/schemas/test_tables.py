"""Every table's row, Arrow schema, key, partitions and expectations agree; an example row comes back from a lake."""

import hashlib
import types
import typing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from schemas.config.sections import LakeConfig
from schemas.table import SCHEMA_VERSION, Table
from schemas.tables import TABLES
from storage.lake import Lake

EXAMPLES: dict[Any, Any] = {
    int: 7,
    float: 0.5,
    str: "a",
    bool: True,
    bytes: b"png",
    datetime: datetime(2026, 1, 1, tzinfo=UTC),
    list[str]: ["a"],
    list[int]: [1, 2],
    list[float]: [0.5],
}
ARROW: dict[Any, Any] = {
    int: pa.types.is_integer,
    float: pa.types.is_floating,
    str: pa.types.is_string,
    bool: pa.types.is_boolean,
    bytes: pa.types.is_binary,
    datetime: pa.types.is_timestamp,
    list[str]: pa.types.is_list,
    list[int]: pa.types.is_list,
    list[float]: pa.types.is_list,
}

every_table = pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))


def _kind(hint: Any) -> tuple[Any, bool]:
    """The Python type behind an annotation, and whether it may be None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _kind(next(option for option in typing.get_args(hint) if option is not type(None)))[0], True
    if typing.get_origin(hint) is typing.Literal:
        return hint, False
    return typing.get_args(hint)[0], False


def _hints(table: Table) -> dict[str, Any]:
    return typing.get_type_hints(table.row, include_extras=True)


def _example(table: Table) -> dict[str, Any]:
    values = {}
    for name, hint in _hints(table).items():
        kind, _ = _kind(hint)
        values[name] = typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Literal else EXAMPLES[kind]
    return values


@every_table
def test_row_and_arrow_schema_have_the_same_fields_in_order_with_the_same_types(table: Table) -> None:
    hints = _hints(table)
    assert table.schema.names == list(hints) == list(table.row.model_fields)
    for name, hint in hints.items():
        kind, optional = _kind(hint)
        field = table.schema.field(name)
        assert field.nullable == optional, name
        assert ARROW[str if typing.get_origin(kind) is typing.Literal else kind](field.type), name


@every_table
def test_the_schema_names_its_table_and_version(table: Table) -> None:
    assert table.schema.metadata == {
        b"flywheel.table": table.name.encode(),
        b"flywheel.version": str(SCHEMA_VERSION).encode(),
    }


def test_a_column_is_not_changed_without_a_new_schema_version() -> None:
    """Otherwise a lake of the release before is neither refused nor upgraded. Change both lines together."""
    columns = "\n".join(
        f"{name}.{field.name}: {field.type}" for name, one in sorted(TABLES.items()) for field in one.schema
    )
    found = (SCHEMA_VERSION, hashlib.sha256(columns.encode()).hexdigest()[:16])
    assert found == (6, "640200460446ac83"), f"the tables have changed: raise SCHEMA_VERSION once, and write {found}"


@every_table
def test_key_and_partitions_are_columns_that_are_never_null(table: Table) -> None:
    assert table.key
    for column in (*table.key, *table.partition_by):
        assert not table.schema.field(column).nullable


@every_table
def test_a_table_with_iterations_that_grows_is_partitioned_by_them(table: Table) -> None:
    if "iteration" in table.schema.names and table.name != "policies":
        assert table.partition_by == ("iteration",)


@every_table
def test_expectations_name_columns_that_exist_and_say_why(table: Table) -> None:
    for expectation in table.expectations:
        assert set(expectation.columns) <= set(table.schema.names)
        assert expectation.columns and expectation.because


@every_table
def test_the_key_is_expected_to_be_unique(table: Table) -> None:
    assert any("Unique" in each.kind and tuple(each.columns) == table.key for each in table.expectations)


@every_table
def test_closed_sets_of_the_row_and_of_its_expectations_agree(table: Table) -> None:
    for expectation in table.expectations:
        if expectation.kind == "ExpectColumnValuesToBeInSet":
            (column,) = expectation.columns
            kind, _ = _kind(_hints(table)[column])
            if typing.get_origin(kind) is typing.Literal:
                assert sorted(typing.get_args(kind)) == expectation.arguments["value_set"]


@every_table
def test_an_example_row_comes_back_from_a_lake_as_it_was(table: Table, tmp_path: Path) -> None:
    lake, row = Lake.open(LakeConfig(uri=str(tmp_path / "lake"))), _example(table)
    assert lake.append(table.name, [table.row.model_validate(row)]) == 1
    found = lake.read(table.name)
    assert found.schema.equals(table.schema, check_metadata=True)
    assert found.to_pylist() == [row]
    assert lake.append(table.name, found) == 0


@every_table
def test_a_row_without_its_optional_fields_comes_back_with_nulls(table: Table, tmp_path: Path) -> None:
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    row = {name: None if _kind(hint)[1] else _example(table)[name] for name, hint in _hints(table).items()}
    lake.append(table.name, [row])
    assert lake.read(table.name).to_pylist() == [row]


@every_table
def test_an_unknown_field_is_refused_by_name(table: Table) -> None:
    with pytest.raises(ValidationError, match="colour"):
        table.arrow([{**_example(table), "colour": "red"}])
