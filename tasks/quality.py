"""Stages `quality` and `recheck`: run the quality gate before training, and again on tables written after it.

The gate also warns about an iteration that differs from earlier iterations.
"""

from collections.abc import Iterable, Mapping

from common.text import counted
from curation.drift import HistogramDrift, drift
from schemas.config import Config
from schemas.config.sections import QualityConfig
from schemas.failure import GateRefused, UsageError
from schemas.tables import TABLES
from schemas.tables.quality import QualityResult
from schemas.tables.stage import StageResult, chronological, label_of
from storage.catalog import ask
from storage.lake import Lake
from storage.quality.docs import publish_docs
from storage.quality.gate import run_gate
from tasks.overrides import not_overridden
from tasks.running.boundary import boundary
from tasks.running.console import print_line
from tasks.running.run import Run, run_of
from tasks.running.run_page import emit_failure
from tasks.running.stage import result_of, stage
from tasks.shared.paths import docs_folder

MEASURES = {
    "lengths": ("trajectories", "trajectories got longer or shorter: tasks, policy or a stuck sandbox changed"),
    "rewards": ("trajectories", "rewards moved: the policy got better or worse, or the verifier changed"),
    "actions": ("steps", "other actions are taken: a dialect or a policy changed, or collapsed to few of them"),
    "sizes": ("steps", "screens of other sizes than the policy was trained on"),
    "screens": ("screenshots", "more screens are new than usual, or none are: an environment changed, or ran dry"),
    "agreement": ("agreements", "judges agree with those who know otherwise than before: their scores are worth less"),
}
"""Table and reason of each measure of drift."""


def drift_results(lake: Lake, iteration: int, config: QualityConfig) -> list[QualityResult]:
    """Return one result for each measure that this iteration and earlier iterations have; none for an import."""
    if iteration < 1:
        return []
    counts: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
    for row in ask(lake, "drift", iteration=iteration, window=config.drift_window).to_pylist():
        now, before = counts.setdefault(row["measure"], ({}, {}))
        now[row["category"]], before[row["category"]] = row["now"], row["before"]
    found = {measure: drift(*counts[measure]) for measure in MEASURES if measure in counts}
    return [_result(iteration, measure, one, config) for measure, one in found.items() if one is not None]


def _result(iteration: int, measure: str, found: HistogramDrift, config: QualityConfig) -> QualityResult:
    table, because = MEASURES[measure]
    first = max(0, iteration - config.drift_window)
    since = f"iteration {first}" if first == iteration - 1 else f"iterations {first} to {iteration - 1}"
    limit = max(config.drift_above, found.chance)
    seen = f"stability index {found.psi:.3f} against {since}, of {found.now:,} and {found.before:,} (limit {limit:.3f})"
    return QualityResult(
        iteration=iteration,
        table=table,
        expectation=f"Drift({measure})",
        severity="warning",
        success=not found.beyond(config.drift_above),
        observed="; ".join([seen, *found.moved]),
        unexpected=0,
        examples="[]",
        error=None,
        because=because,
        value=found.psi,
    )


class Passed(StageResult):
    """Result of a gate that passed. The stored fields are those of `flywheel quality check --json`."""

    iteration: int
    expectations: int
    warnings: int
    overridden: int
    """Number of overridden critical failures."""
    versions: Mapping[str, int] = {}
    """Checked version of each table, stored by the stage `quality`. The stage `recheck` compares with them."""

    def __str__(self) -> str:
        more = f", {counted(self.overridden, 'critical failure')} overridden" if self.overridden else ""
        return f"{counted(self.expectations, 'expectation')}, {counted(self.warnings, 'warning')}{more}"


@stage("quality")
def check_quality(run: Run, iteration: int) -> Passed:
    """Run Great Expectations on every table. Critical failures without an override stop the iteration.

    Raises:
        GateRefused: a critical expectation or the gate itself failed. The message has the table, the rule and the rows.
    """
    versions = run.lake.versions()
    return passed(run, iteration, examine(run, iteration)).model_copy(update={"versions": versions})


@stage("recheck")
def check_again(run: Run, iteration: int) -> Passed:
    """Run Great Expectations on tables that were written after `check_quality`, such as evaluations.

    Raises:
        GateRefused: as in `check_quality`.
    """
    before = (result_of(run.lake, iteration, "quality") or {}).get("versions")
    known = before if isinstance(before, Mapping) else {}
    tables = [name for name, version in run.lake.versions().items() if known.get(name) != version]
    return passed(run, iteration, examine(run, iteration, tables, whole=False))


@boundary("quality")
def verify_quality(config: Config, iteration: int | None) -> Passed:
    """Run the gate on every table of an iteration, at any time.

    Args:
        config: the resolved config.
        iteration: the iteration; the latest iteration with trajectories if not given.

    Raises:
        UsageError: the lake has no trajectory of this iteration.
        GateRefused: as in `check_quality`.
    """
    run = run_of(config, create=False)
    known = sorted(run.lake.iterations("trajectories"), key=chronological)
    if not known or iteration not in {None, *known}:
        which = "any iteration" if iteration is None else label_of(iteration)
        there = ", ".join(label_of(one) for one in known) or "nothing yet"
        raise UsageError(f"The lake holds no trajectory of {which}.", f"It has {there}.")
    asked = known[-1] if iteration is None else iteration
    try:
        found = passed(run, asked, examine(run, asked))
    except GateRefused as error:
        emit_failure(run.lake, asked, "quality", error)
        raise
    print_line(f"{label_of(asked)}  quality  {found}")
    return found


def examine(run: Run, iteration: int, tables: Iterable[str] = tuple(TABLES), whole: bool = True) -> list[QualityResult]:
    """Store and return the results of the gate for these tables, and the drift of the iteration."""
    folder, keep = docs_folder(run.config, run.lake) if whole else None, run.config.quality.keep_docs
    drift = drift_results(run.lake, iteration, run.config.quality) if whole else []
    results = run_gate(run.lake, iteration, tables, folder, keep, drift)
    run.lake.upsert("quality", results)
    if folder is not None:
        publish_docs(run.lake, folder, iteration, keep)
    return results


def passed(run: Run, iteration: int, results: list[QualityResult]) -> Passed:
    """Summarize the results. Raise GateRefused for critical failures without an override."""
    failed = [row for row in results if not row.success]
    critical = [row for row in failed if row.severity == "critical"]
    refused = not_overridden(run.lake, iteration, critical)
    if refused:
        raise GateRefused(
            _refusal(iteration, refused),
            "Correct or delete those rows, then run the same command again; or take them on: "
            f"`flywheel quality override --reason ... {'-- ' if iteration < 0 else ''}{iteration}`.",
        )
    warnings, taken_on = len(failed) - len(critical), len(critical)
    return Passed(iteration=iteration, expectations=len(results), warnings=warnings, overridden=taken_on)


def _refusal(iteration: int, rows: list[QualityResult]) -> str:
    failed = []
    for row in rows[:5]:
        what = f"the check itself broke: {row.error}" if row.error else f"{row.unexpected} rows, such as {row.examples}"
        failed.append(f"{row.table}: {row.expectation} ({row.because}): {what}")
    more = f"; and {len(rows) - 5} more" if len(rows) > 5 else ""
    return f"The quality gate refuses {label_of(iteration)}. " + "; ".join(failed) + more
