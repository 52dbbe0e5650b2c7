"""Run the quality gate: Great Expectations checks the contracts' expectations on the rows of one iteration.

A check that raises an error is not bad data. Great Expectations reports both as `success: false`; here the first has
its `error` set, so that a gate error and a data failure stay apart.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from schemas.table import Expectation, Table
from schemas.tables import TABLES
from schemas.tables.quality import QualityResult
from storage.lake import Lake
from storage.quality.docs import docs_context, write_docs
from storage.quality.rows import expectations_of, named_by, rows_of, with_trajectories

EXAMPLES = 10
"""Number of offending keys in a result."""


def run_gate(
    lake: Lake, iteration: int, tables: Iterable[str], docs: Path | None, keep: int = 3
) -> list[QualityResult]:
    """Return one result per expectation of the tables that an iteration wrote; the lake's tables do not change.

    A table without rows of the iteration breaks nothing, so Great Expectations is not run on it.

    Args:
        lake: the lake with the tables.
        iteration: the iteration whose rows are checked; tables without partitions by iteration are checked whole.
        tables: their names.
        docs: parent folder of the Data Docs (`iteration-NNNN/`, or `import-NNNN/` for an import); None makes none.
        keep: number of iterations whose Data Docs stay there.
    """
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    context = docs_context(docs, iteration)
    results: list[QualityResult] = []
    for contract in [TABLES[name] for name in tables]:
        expectations = expectations_of(contract)
        try:
            found = _validated(context, lake, contract, expectations, iteration)
            results += [_result(contract, iteration, each, found.get(name_of(each))) for each in expectations]
        except Exception as error:  # any error of a check is a gate error, never a verdict on the data
            results += [_broken(contract, iteration, expectation, error) for expectation in expectations]
    if docs is not None:
        write_docs(context, docs, results, keep)
    return [with_trajectories(lake, result) for result in results]


def name_of(expectation: Expectation) -> str:
    """Return an expectation's name in results: its kind and its columns."""
    values = expectation.arguments
    columns = [*expectation.columns, *(values[side] for side in ("column_A", "column_B") if side in values)]
    return f"{expectation.kind}({', '.join(columns)})"


def _validated(
    context: Any, lake: Lake, contract: Table, expectations: list[Expectation], iteration: int
) -> dict[str, Any]:
    import great_expectations as gx  # seconds to import, so not before a gate is run

    from storage.quality.engine import validated

    suite = gx.ExpectationSuite(name=contract.name, expectations=[_check(expectation) for expectation in expectations])
    with rows_of(lake, contract, iteration) as connection:
        if connection.execute("FROM rows LIMIT 1").fetchone() is None:
            return {}
        results = validated(context, suite, connection, named_by(contract), EXAMPLES)
    return {result.expectation_config.meta["name"]: result for result in results}


def _check(expectation: Expectation) -> Any:
    import great_expectations.expectations as gxe

    check = getattr(gxe, expectation.kind)
    about = {"severity": expectation.severity, "notes": expectation.because, "meta": {"name": name_of(expectation)}}
    return check(**expectation.arguments, **about)


def _result(contract: Table, iteration: int, expectation: Expectation, found: Any) -> QualityResult:
    error = _exception(found.exception_info) if found else None
    seen = (found.result if found else None) or {}
    unexpected = int(seen.get("unexpected_count") or 0)
    return QualityResult(
        iteration=iteration,
        table=contract.name,
        expectation=name_of(expectation),
        severity=expectation.severity,
        success=found is None or (bool(found.success) and error is None),
        observed=f"{unexpected} of {seen.get('element_count', 0)} unexpected" if not error else BROKE,
        unexpected=unexpected,
        examples=_examples(seen, named_by(contract)),
        error=error,
        because=expectation.because,
        value=None if error else unexpected / max(1, seen.get("element_count", 0)),
    )


BROKE = "the check broke"


def _broken(contract: Table, iteration: int, expectation: Expectation, error: Exception) -> QualityResult:
    return QualityResult(
        iteration=iteration,
        table=contract.name,
        expectation=name_of(expectation),
        severity=expectation.severity,
        success=False,
        observed=BROKE,
        unexpected=0,
        examples="[]",
        error=f"{type(error).__name__}: {error}",
        because=expectation.because,
    )


def _exception(info: Mapping[str, Any] | None) -> str | None:
    """Return the error of a check, or None; `info` is one record, or one record per metric."""
    info = info or {}
    records = [info] if "raised_exception" in info else [value for value in info.values() if isinstance(value, dict)]
    raised = [str(record.get("exception_message")) for record in records if record.get("raised_exception")]
    return "; ".join(raised) or None


def _examples(seen: Mapping[str, Any], key: tuple[str, ...]) -> str:
    rows = (seen.get("unexpected_index_list") or [])[:EXAMPLES]
    return json.dumps([{name: row.get(name) for name in key} for row in rows], sort_keys=True, default=str)
