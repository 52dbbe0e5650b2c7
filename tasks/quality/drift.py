"""Warn about an iteration that differs from earlier iterations."""

from curation.drift import HistogramDrift, drift
from schemas.config.sections import QualityConfig
from schemas.tables.quality import QualityResult
from storage.catalog import ask
from storage.lake import Lake

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
