"""Import an external data set into a lake: gated and routed like flywheel's own rollouts."""

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
from tasks.quality.gate import check_again, check_quality
from tasks.running.iterations import close_iteration
from tasks.running.run import open_run, run_name
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
