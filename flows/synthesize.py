"""Make new tasks, outside of an iteration."""

from prefect import flow

from schemas.config import Config
from tasks.prepare import prepare_lake
from tasks.running.run import open_run, run_name
from tasks.synthesize.command import synthesize_now
from tasks.synthesize.synthesize import Made


@flow(name="synthesize", flow_run_name=run_name)
def synthesize(config: Config, iterations: tuple[int, int] | None = None) -> tuple[int, Made]:
    """Makes tasks for the next iteration; returns its number, and the results of the proposals.

    Args:
        config: the resolved config.
        iterations: the iterations whose failures count, the first and the one after the last; all if not given.
    """
    with open_run(config):
        if config.synthesis.solver == "champion":
            prepare_lake(config, -1)
        return synthesize_now(config, iterations)
