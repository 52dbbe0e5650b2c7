"""Run flywheel iterations, each a sequence of stages."""

from prefect import State, flow

from flows.learn import learn
from schemas.config import Config
from tasks.annotate import annotate_steps
from tasks.check import check_before_spending
from tasks.collect.collect import collect_trajectories
from tasks.curriculum import choose_tasks
from tasks.filter import filter_trajectories
from tasks.iteration_lock import iteration_lock
from tasks.prepare import prepare_lake
from tasks.quality.gate import check_quality
from tasks.reflect.reflect import reflect_on_failures
from tasks.running.boundary import until_paused
from tasks.running.budget import Exhausted
from tasks.running.iterations import close_iteration, plan_iterations
from tasks.running.pausing import Pause
from tasks.running.run import open_run, run_name
from tasks.synthesize.synthesize import synthesize_tasks
from tasks.think.think import think_of_steps


@flow(name="flywheel", flow_run_name=run_name)
def flywheel(config: Config, iterations: int | None = None) -> State[Pause | Exhausted] | None:
    """Runs iterations; an interrupted one is finished first and counts as one.

    Args:
        config: the resolved config.
        iterations: number of iterations; the config's number if not given.

    Returns:
        The reason of an early end, the pause of the lake or its budget, or None.
    """
    check_before_spending(config)
    with open_run(config) as run, iteration_lock(run.lake), until_paused(run) as end:
        planned = plan_iterations(config, iterations)
        prepare_lake(config, -1)
        for iteration in planned:
            if config.synthesis.on:
                synthesize_tasks(config, iteration)
            choose_tasks(config, iteration)
            collect_trajectories(config, iteration)
            filter_trajectories(config, iteration)
            reflect_on_failures(config, iteration)
            think_of_steps(config, iteration)
            annotate_steps(config, iteration)
            check_quality(config, iteration)
            learn(config, iteration)
            close_iteration(config, iteration)
    return end.state
