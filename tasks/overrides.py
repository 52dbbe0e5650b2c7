"""Override critical failures of the quality gate, with a reason. Overridden failures no longer stop an iteration."""

from schemas.failure import UsageError
from schemas.table import utc_now
from schemas.tables.quality import QualityOverride, QualityResult
from schemas.tables.stage import label_of
from storage.lake import Lake
from tasks.train.readable import require_readable


def not_overridden(lake: Lake, iteration: int, failed: list[QualityResult]) -> list[QualityResult]:
    """Return the failures of an iteration that no override covers."""
    known = lake.rows(QualityOverride, {"iteration": iteration})
    return [row for row in failed if not any(one.covers(row) for one in known)]


def override_failures(lake: Lake, iteration: int, reason: str, person: str) -> list[QualityOverride]:
    """Override every critical failure of an iteration that has no override yet.

    Raises:
        UsageError: the reason is empty, the iteration has no failure to override, or training cannot read its rows.
    """
    if not reason.strip() or not person.strip():
        raise UsageError("An override needs a reason, and a person who gives it.", "Write `--reason` and `--by`.")
    rows = lake.rows(QualityResult, {"iteration": iteration, "severity": "critical", "success": False})
    open_ones = not_overridden(lake, iteration, rows)
    if not open_ones:
        raise UsageError(
            f"No critical expectation of {label_of(iteration)} failed without an override.",
            "`flywheel quality` lists the failures; warnings stop nothing.",
        )
    require_readable(lake, iteration)
    now = utc_now()
    written = [
        QualityOverride(
            iteration=iteration,
            table=row.table,
            expectation=row.expectation,
            unexpected=row.unexpected,
            broke=row.error is not None,
            reason=reason.strip(),
            person=person.strip(),
            created_at=now,
        )
        for row in open_ones
    ]
    lake.append("quality_overrides", written)
    return written


def overridden(lake: Lake, version: int | None) -> list[QualityOverride]:
    """Return all overrides at a version of their table, oldest first; none if the version is None."""
    if version is None:
        return []
    rows = lake.rows(QualityOverride, version=version)
    return sorted(rows, key=lambda row: (row.created_at, row.table, row.expectation))
