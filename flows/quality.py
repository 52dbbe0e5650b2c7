"""Run the quality gate over stored data, outside of an iteration."""

from prefect import flow

from schemas.config import Config
from tasks.quality.gate import Passed, verify_quality
from tasks.running.run import open_run, run_name


@flow(name="quality", flow_run_name=run_name)
def quality(config: Config, iteration: int | None = None) -> Passed:
    """Checks every table of an iteration anew, including later changes, and stores the results.

    Args:
        config: the resolved config.
        iteration: the latest one with trajectories, if not given; those of imports are negative.

    Raises:
        GateRefused: a critical expectation failed without an override.
    """
    with open_run(config, create=False):
        return verify_quality(config, iteration)
