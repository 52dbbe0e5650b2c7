"""The gate's engine answers what Great Expectations' own pandas engine answers, and knows NaN."""

from typing import Any

import duckdb
import hypothesis.strategies as st
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings

from schemas.table import Expectation
from storage.quality.gate import name_of, offending
from tests.fixtures.pandas_gate import judged_in_pandas

KEY = ("id",)
GENERATE = (Phase.generate,)
"""A suite takes a second: no failing one is made smaller."""
SCHEMA = pa.schema(
    {"id": pa.int64(), "name": pa.string(), "n": pa.int32(), "m": pa.int32(), "x": pa.float32(), "s": pa.string()}
)


def expecting(kind: str, **arguments: Any) -> Expectation:
    return Expectation(kind=kind, arguments=arguments, because="")


SUITE = [
    expecting("ExpectColumnValuesToBeUnique", column="name"),
    expecting("ExpectCompoundColumnsToBeUnique", column_list=["name", "n"]),
    expecting("ExpectColumnValuesToNotBeNull", column="s"),
    expecting("ExpectColumnValuesToNotBeNull", column="x"),
    expecting("ExpectColumnValuesToBeBetween", column="x", min_value=0.0, max_value=1.0),
    expecting("ExpectColumnValuesToBeBetween", column="n", min_value=1, max_value=None),
    expecting("ExpectColumnValuesToBeBetween", column="m", min_value=0, max_value=2, strict_min=True, strict_max=True),
    expecting("ExpectColumnValuesToBeInSet", column="s", value_set=["a", "it's"]),
    expecting("ExpectColumnValuesToNotBeInSet", column="m", value_set=[1]),
    expecting("ExpectColumnValuesToMatchRegex", column="name", regex=r"^[ab'é]{1,2}$"),
    expecting("ExpectColumnValuesToNotMatchRegex", column="name", regex=r"é"),
    expecting("ExpectColumnPairValuesToBeEqual", column_A="n", column_B="m"),
    expecting("ExpectColumnPairValuesToBeEqual", column_A="m", column_B="n", ignore_row_if="either_value_is_missing"),
]
small = st.integers(-1, 3)
texts = st.sampled_from(["a", "b", "ab", "abc", "it's", "é", ""])
rows = st.lists(
    st.fixed_dictionaries(
        {
            "name": texts,
            "n": small,
            "m": st.none() | small,
            "x": st.none() | st.sampled_from([-0.5, 0.0, 0.5, 1.0, 1.5, float("inf"), float("-inf")]),
            "s": st.none() | texts,
        }
    ),
    min_size=1,  # the gate passes over a table without rows
    max_size=8,
)


def in_duckdb(table: pa.Table, suite: list[Expectation]) -> dict[str, Any]:
    from storage.quality import engine

    checks = [engine.check(each, name_of(each)) for each in suite]
    with duckdb.connect() as connection:
        connection.register("rows", table)
        found = engine.validated(engine.new_context(), "suite", checks, connection, KEY, 10)
    return {result.expectation_config.meta["name"]: result for result in found.results}


def named(result: Any, key: tuple[str, ...] = KEY) -> list[dict[str, Any]]:
    return offending(result.result, key)


@pytest.mark.nightly
@settings(max_examples=20, deadline=None, phases=GENERATE)
@given(rows)
def test_every_kind_is_judged_as_pandas_judges_it(made: list[Any]) -> None:
    compare(made)


@pytest.mark.slow
@settings(max_examples=4, deadline=None, phases=GENERATE)
@given(rows.filter(lambda made: len(made) > 2))
def test_some_tables_are_judged_as_pandas_judges_them(made: list[Any]) -> None:
    compare(made)


def compare(made: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist([{"id": number, **row} for number, row in enumerate(made)], schema=SCHEMA)
    ours, theirs = in_duckdb(table, SUITE), judged_in_pandas(table.to_pandas(), SUITE, KEY)
    assert set(ours) == set(theirs) == {name_of(each) for each in SUITE}
    for name, result in theirs.items():
        assert (ours[name].success, _seen(ours[name])) == (result.success, _seen(result)), (name, made)


def _seen(result: Any) -> dict[str, Any]:
    numbers = ("element_count", "unexpected_count", "missing_count", "unexpected_percent")
    columns = result.expectation_config.kwargs.get("column_list")  # of repeated keys SQL names the keys, not the rows
    return {name: result.result.get(name) for name in numbers} | {"rows": named(result, tuple(columns or KEY))}


def test_a_nan_lies_in_no_range() -> None:
    table = pa.table({"id": [0, 1, 2], "x": pa.array([0.5, float("nan"), None], pa.float64())})
    suite = [
        expecting("ExpectColumnValuesToBeBetween", column="x", min_value=0.0, max_value=1.0),
        expecting("ExpectColumnValuesToBeBetween", column="x", min_value=0.0, max_value=None),
    ]
    found = in_duckdb(table, suite[:1]), in_duckdb(table, suite[1:])
    for each in found:
        (result,) = each.values()
        assert (result.result["unexpected_count"], named(result)) == (1, [{"id": 1}])


def test_of_many_bad_rows_only_the_first_by_key_are_named() -> None:
    table = pa.Table.from_pandas(pd.DataFrame({"id": range(999, -1, -1), "x": [9.0] * 1000}))
    suite = [expecting("ExpectColumnValuesToBeBetween", column="x", min_value=0.0, max_value=1.0)]
    (result,) = in_duckdb(table, suite).values()
    assert result.result["unexpected_count"] == 1000
    assert named(result) == [{"id": number} for number in range(10)]


def test_a_check_that_breaks_leaves_the_others_of_its_table_alone() -> None:
    table = pa.table({"id": [0, 1], "name": ["a", "b"], "x": [0.5, 2.0]})
    suite = [
        expecting("ExpectColumnValuesToBeBetween", column="name", min_value=0, max_value=1),
        expecting("ExpectColumnValuesToBeBetween", column="x", min_value=0.0, max_value=1.0),
        expecting("ExpectColumnValuesToBeUnique", column="id"),
    ]
    broken, range_of_x, unique = (in_duckdb(table, suite)[name_of(each)] for each in suite)
    assert not broken.success and not broken.result
    assert (range_of_x.result["unexpected_count"], named(range_of_x)) == (1, [{"id": 1}]) and unique.success
