"""Run the gates over stored trajectories, without rolling out again."""

from prefect import flow

from schemas.config import Config
from tasks.refilter import Changes, refilter_trajectories
from tasks.running.run import open_run, run_name


@flow(name="refilter", flow_run_name=run_name)
def refilter(config: Config, iterations: tuple[int, int] | None = None) -> Changes:
    """Filters stored trajectories anew; returns the changes.

    Args:
        config: the resolved config.
        iterations: the first, and the one after the last; all if not given.
    """
    with open_run(config, create=False):
        return refilter_trajectories(config, iterations)
