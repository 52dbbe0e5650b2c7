"""Collect alone: the data half of an iteration."""

from prefect import State, flow

from schemas.config import Config
from tasks.check import check_before_spending
from tasks.collect.collect import collect_trajectories
from tasks.curriculum import choose_tasks
from tasks.filter import filter_trajectories
from tasks.iteration_lock import iteration_lock
from tasks.prepare import prepare_lake
from tasks.running.boundary import until_paused
from tasks.running.budget import Exhausted
from tasks.running.iterations import plan_iterations
from tasks.running.pausing import Pause
from tasks.running.run import open_run, run_name


@flow(name="collect", flow_run_name=run_name)
def collect(config: Config) -> State[Pause | Exhausted] | None:
    """Rolls out and filters the next iteration's trajectories; `flywheel run` continues from there."""
    check_before_spending(config)
    with open_run(config) as run, iteration_lock(run.lake), until_paused(run) as end:
        planned = plan_iterations(config, 1)
        prepare_lake(config, -1)
        for iteration in planned:
            choose_tasks(config, iteration)
            collect_trajectories(config, iteration)
            filter_trajectories(config, iteration)
    return end.state
