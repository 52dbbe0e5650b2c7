"""The quality gate over stored data, without an iteration under way."""

from prefect import flow

from schemas.config import Config
from tasks.quality.gate import Passed, verify_quality
from tasks.running.run import open_run, run_name


@flow(name="quality", flow_run_name=run_name)
def quality(config: Config, iteration: int | None = None) -> Passed:
    """Checks every table of an iteration anew, whatever became of it since, and keeps what is found.

    Args:
        config: the resolved config.
        iteration: the latest that there are trajectories of, if not given; those of imports are negative.

    Raises:
        GateRefused: a critical expectation failed that nobody took on.
    """
    with open_run(config, create=False):
        return verify_quality(config, iteration)
