"""Refuse streamed training with a judge on probation.

All trajectories that such a judge accepts are held back, so its groups would be useless.
"""

from curation.agreement import probation
from environments.catalog import catalog
from environments.registry import verifier_of
from models.judges.registry import GATE
from schemas.config import Config
from schemas.failure import UsageError
from tasks.shared.agreements import Standing
from tasks.shared.paths import lake_if_any


def require_trusted(config: Config, version: str) -> None:
    """Raise UsageError if a run would train on trajectories while a judge on probation scores them.

    Args:
        config: config of the run.
        version: version of the judge's verdicts with this config.
    """
    if not config.train.stream.on or GATE not in config.filter.gates:
        return
    trained_on = [task for task in catalog(config) if task.split != "held_out"]
    judged = sorted(task.template for task in trained_on if verifier_of(task.verifier) is None)
    if not judged:
        return
    lake = lake_if_any(config)
    because = Standing(lake, config.judge).probation(version) if lake else probation([], config.judge)
    if because:
        raise UsageError(
            f"`train.stream.on`: the judge of {', '.join(judged)} is on probation ({because}), and trajectories that "
            "it accepts would be in no batch.",
            "Let it earn trust first: `flywheel judge` on trajectories with a verifier, or iterations without "
            "`train.stream.on`. Or leave these tasks out, or trust it unseen with judge.evidence_min=0.",
        )
