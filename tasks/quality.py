"""Stage: the data-quality gate in front of training."""

from typing import Any

from schemas.failure import GateRefused
from schemas.tables.quality import QualityResult
from storage.quality.gate import run_gate
from tasks.shared.paths import docs_folder
from tasks.shared.run import Run
from tasks.shared.stage import stage

GATED = (
    "trajectories",
    "steps",
    "screenshots",
    "verdicts",
    "reflections",
    "annotations",
    "readings",
    "pairs",
    "curriculum",
)


@stage("quality")
def check_quality(run: Run, iteration: int) -> dict[str, Any]:
    """Great Expectations over every table this iteration wrote; critical failures stop the iteration here.

    Raises:
        GateRefused: a critical expectation failed, or the gate itself broke; names the table, the rule and the rows.
    """
    config, lake = run.config, run.lake
    results = run_gate(lake, iteration, GATED, docs_folder(config, lake), config.quality.keep_docs)
    lake.upsert("quality", results)
    failed = [row for row in results if not row.success]
    critical = [row for row in failed if row.severity == "critical"]
    if critical:
        raise GateRefused(
            _refusal(iteration, critical), "Correct or delete those rows, then run the same command again."
        )
    return {
        "expectations": len(results),
        "warnings": len(failed),
        "say": f"{len(results)} expectations, {len(failed)} warnings",
    }


def _refusal(iteration: int, rows: list[QualityResult]) -> str:
    failed = []
    for row in rows[:5]:
        what = f"the check itself broke: {row.error}" if row.error else f"{row.unexpected} rows, such as {row.examples}"
        failed.append(f"{row.table}: {row.expectation} ({row.because}): {what}")
    return f"The quality gate refuses iteration {iteration}. " + "; ".join(failed)
