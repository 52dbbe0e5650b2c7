"""Import, filter, check and maintain data, and make tasks, outside of an iteration."""

from prefect import flow

from schemas.config import Config
from schemas.table import Metrics
from tasks.annotate import annotate_steps
from tasks.exchange.importing import (
    Request,
    check_import,
    claim_import,
    has_new,
    import_data_set,
    import_decisions,
)
from tasks.filter import filter_trajectories
from tasks.maintain import maintain_lake
from tasks.prepare import prepare_lake
from tasks.quality.gate import Passed, check_again, check_quality, verify_quality
from tasks.refilter import Changes, refilter_trajectories
from tasks.running.iterations import close_iteration
from tasks.running.run import open_run, run_name
from tasks.synthesize.command import synthesize_now
from tasks.synthesize.synthesize import Made
from tasks.think.think import think_of_steps


@flow(name="import", flow_run_name=run_name)
def import_data(config: Config, request: Request, checked: str | None = None) -> Metrics:
    """Checks all of it, writes it as an iteration of its own, and decides where each trajectory's data goes.

    Its quality is checked before the filter: refused data has no route, and is never trained on.

    Args:
        config: the resolved config.
        request: the data set and its format.
        checked: the data set's name, where the caller has checked it.

    Returns:
        The iteration, its name, the written rows, and the number of trajectories by route. The iteration is None where
        the lake has all trajectories; only new decisions of people are written then.
    """
    name = checked or check_import(config, request)
    with open_run(config):
        if not has_new(config, request, name):
            return {"iteration": None, **import_decisions(config, request, name), "routes": {}}
        iteration = claim_import(config, request, name)
        written = import_data_set(config, request, name, iteration)
        check_quality(config, iteration)
        routed = filter_trajectories(config, iteration)
        think_of_steps(config, iteration)
        annotate_steps(config, iteration)
        check_again(config, iteration)
        close_iteration(config, iteration)
        return {"iteration": iteration, **written, "routes": routed["routes"]}


@flow(name="refilter", flow_run_name=run_name)
def refilter(config: Config, iterations: tuple[int, int] | None = None) -> Changes:
    """Filters stored trajectories anew; returns the changes.

    Args:
        config: the resolved config.
        iterations: the first, and the one after the last; all if not given.
    """
    with open_run(config, create=False):
        return refilter_trajectories(config, iterations)


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


@flow(name="maintain", flow_run_name=run_name)
def maintain(config: Config) -> dict[str, int]:
    """Merges small files, and removes those that neither a policy's pinned versions nor the last day's versions need.

    Every iteration does so at its end; this is for lakes that are written to without one. Readers and writers continue.

    Returns:
        The lake's bytes before and after.
    """
    with open_run(config, create=False):
        return maintain_lake(config)
