"""Conditions of Great Expectations as DuckDB SQL that finds the rows that break them.

A null breaks only `nonnull`, as everywhere in Great Expectations. NaN is a number greater than infinity, so no range
contains it. The pandas engine of Great Expectations takes NaN for a null and lets it pass; this one does not.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Arguments = Mapping[str, Any]


def quoted(name: str) -> str:
    """Quote a column's name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """Format a value as SQL.

    Raises:
        TypeError: neither text, number nor truth value.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    raise TypeError(f"{value!r} is no text, number or truth value")


def condition(metric: str, domain: Arguments, values: Arguments) -> str:
    """Return the SQL condition of the rows that break an expectation's condition; null or false for the others.

    Args:
        metric: the condition's name, such as `column_values.between`.
        domain: its columns.
        values: its arguments.

    Raises:
        NotImplementedError: there is no SQL for it.
    """
    if metric not in CONDITIONS:
        raise NotImplementedError(f"The gate has no SQL for `{metric}`; it knows {', '.join(sorted(CONDITIONS))}.")
    return CONDITIONS[metric](domain, values)


def considered(domain: Arguments) -> str:
    """Return the SQL condition of the rows that an expectation of several columns checks (`ignore_row_if`)."""
    rule = domain.get("ignore_row_if", "neither")
    if rule in ("neither", "never"):
        return "true"
    columns = domain.get("column_list") or [domain["column_A"], domain["column_B"]]
    word = " OR " if rule in ("both_values_are_missing", "all_values_are_missing") else " AND "
    return "(" + word.join(f"{quoted(name)} IS NOT NULL" for name in columns) + ")"


def key_columns(metric: str, domain: Arguments) -> list[str] | None:
    """Return the columns that must identify each row, for a condition about uniqueness; else None."""
    return {
        "column_values.unique": [domain.get("column", "")],
        "compound_columns.unique": domain.get("column_list"),
    }.get(metric)


def _nonnull(domain: Arguments, _: Arguments) -> str:
    return f"{quoted(domain['column'])} IS NULL"


def _between(domain: Arguments, values: Arguments) -> str:
    column, low, high = quoted(domain["column"]), values.get("min_value"), values.get("max_value")
    below, above = "<=" if values.get("strict_min") else "<", ">=" if values.get("strict_max") else ">"
    limits = [] if low is None else [f"{column} {below} {literal(low)}"]
    limits += [f"{column} > 'infinity'::DOUBLE" if high is None else f"{column} {above} {literal(high)}"]
    return f"({' OR '.join(limits)})"


def _in_set(domain: Arguments, values: Arguments) -> str:
    column, listed = quoted(domain["column"]), _listed(values["value_set"])
    return f"{column} NOT IN ({listed})" if listed else f"{column} IS NOT NULL"


def _not_in_set(domain: Arguments, values: Arguments) -> str:
    listed = _listed(values["value_set"])
    return f"{quoted(domain['column'])} IN ({listed})" if listed else "false"


def _match_regex(domain: Arguments, values: Arguments) -> str:
    return f"NOT regexp_matches({quoted(domain['column'])}, {literal(values['regex'])})"


def _not_match_regex(domain: Arguments, values: Arguments) -> str:
    return f"regexp_matches({quoted(domain['column'])}, {literal(values['regex'])})"


def _equal(domain: Arguments, _: Arguments) -> str:
    first, second = quoted(domain["column_A"]), quoted(domain["column_B"])
    return f"{considered(domain)} AND ({first} IS NULL OR {second} IS NULL OR {first} <> {second})"


def _repeated(domain: Arguments, _: Arguments) -> str:
    columns = domain["column_list"] if "column_list" in domain else [domain["column"]]
    key = ", ".join(quoted(name) for name in columns)
    there = considered(domain) if "column_list" in domain else f"{key} IS NOT NULL"
    return f"{there} AND count(*) OVER (PARTITION BY {key}) > 1"


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(literal(value) for value in values)


CONDITIONS: dict[str, Callable[[Arguments, Arguments], str]] = {
    "column_values.nonnull": _nonnull,
    "column_values.between": _between,
    "column_values.in_set": _in_set,
    "column_values.not_in_set": _not_in_set,
    "column_values.match_regex": _match_regex,
    "column_values.not_match_regex": _not_match_regex,
    "column_pair_values.equal": _equal,
    "column_values.unique": _repeated,
    "compound_columns.unique": _repeated,
}
