"""Run flywheel iterations, each a sequence of stages."""

from prefect import State, flow

from schemas.config import Config
from tasks.annotate import annotate_steps
from tasks.collect.collect import collect_trajectories
from tasks.curriculum import choose_tasks
from tasks.evaluate import evaluate_candidate
from tasks.filter import filter_trajectories
from tasks.preflight.preflight import require
from tasks.prepare import prepare_lake
from tasks.promote.promote import promote_candidate
from tasks.quality import check_again, check_quality
from tasks.reflect.reflect import reflect_on_failures
from tasks.running.boundary import flow_task, until_paused
from tasks.running.budget import Exhausted, Pause
from tasks.running.iterations import close_iteration, plan_iterations
from tasks.running.run import open_run, run_name
from tasks.shared.lease import iteration_lock
from tasks.synthesize import synthesize_tasks
from tasks.think.think import think_of_steps
from tasks.train.train import continue_training, train_policy


@flow(name="flywheel", flow_run_name=run_name)
def flywheel(config: Config, iterations: int | None = None) -> State[Pause | Exhausted] | None:
    """Runs iterations. An interrupted iteration is finished first and counts as one of them.

    Args:
        config: the resolved config.
        iterations: number of iterations; the number in the config if not given.

    Returns:
        The reason of an early end (a pause or a spent budget), or None.
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


def learn(config: Config, iteration: int) -> None:
    """Trains a candidate, measures it, and makes it the champion if it is not worse than the current champion.

    This is a plain function, because a separate flow would take Prefect a second.
    """
    continue_training(config, iteration)
    train_policy(config, iteration)
    evaluate_candidate(config, iteration)
    check_again(config, iteration)
    promote_candidate(config, iteration)


@flow(name="collect", flow_run_name=run_name)
def collect(config: Config) -> State[Pause | Exhausted] | None:
    """Rolls out and filters the trajectories of the next iteration. `flywheel run` then continues this iteration."""
    check_before_spending(config)
    with open_run(config) as run, iteration_lock(run.lake), until_paused(run) as end:
        planned = plan_iterations(config, 1)
        prepare_lake(config, -1)
        for iteration in planned:
            choose_tasks(config, iteration)
            collect_trajectories(config, iteration)
            filter_trajectories(config, iteration)
    return end.state


@flow_task("check")
def check_before_spending(config: Config) -> None:
    """Refuse a run that would fail. Raises the errors of `tasks.preflight.preflight.require`."""
    require(config)
