"""Define flows outside of an iteration: import, filter, check and maintain data, and make tasks."""

from prefect import flow

from schemas.config import Config
from schemas.table import Metrics
from tasks.annotate import annotate_steps
from tasks.exchange.demonstrations import accept_demonstrations
from tasks.exchange.importing import (
    Request,
    check_import,
    claim_import,
    has_new,
    import_data_set,
    import_decisions,
)
from tasks.filter import filter_trajectories
from tasks.prepare import prepare_lake
from tasks.pretrain.render import RenderResult, render_pages
from tasks.quality import Passed, check_again, check_quality, verify_quality
from tasks.refilter import Changes, refilter_trajectories
from tasks.running.boundary import boundary
from tasks.running.console import print_line
from tasks.running.iterations import close_iteration
from tasks.running.run import open_run, run_name, run_of
from tasks.synthesize import Made, synthesize_now
from tasks.think.think import think_of_steps


@flow(name="import", flow_run_name=run_name)
def import_data(config: Config, request: Request, checked: str | None = None) -> Metrics:
    """Checks a data set, writes it as an iteration, and decides the route of each trajectory.

    The quality gate runs before the filter. Data that the gate refuses has no route, and training never uses it.
    A repeated import with `demonstrations` takes those trajectories of the lake that have no outcome as successes.

    Args:
        config: the resolved config.
        request: the data set and its format.
        checked: name of the data set, if the caller has checked it.

    Returns:
        The iteration, its name, the written rows, the number of trajectories by route, and the number of rejected
        trajectories by route and gate. The iteration is None where the lake has all trajectories and no import is left
        to finish; only new decisions are written then. `demonstrations` has the result of `accept_demonstrations`.
    """
    name = checked or check_import(config, request).name
    with open_run(config):
        if not has_new(config, request, name):
            written = import_decisions(config, request, name)
            return {
                "iteration": None,
                **written,
                "routes": {},
                "gates": {},
                **_accepted(config, request, name, written),
            }
        iteration = claim_import(config, request, name)
        written = import_data_set(config, request, name, iteration)
        check_quality(config, iteration)
        routed = filter_trajectories(config, iteration)
        think_of_steps(config, iteration)
        annotate_steps(config, iteration)
        check_again(config, iteration)
        close_iteration(config, iteration)
        accepted = _accepted(config, request, name, written)
        return {
            "iteration": iteration, **written, "routes": routed["routes"], "gates": routed.get("gates", {}), **accepted,
        }  # fmt: skip


def _accepted(config: Config, request: Request, name: str, written: Metrics) -> Metrics:
    """Take trajectories that the lake had before the import as successes, if they are demonstrations."""
    if not request.demonstrations or not written["already"]:
        return {}
    return {"demonstrations": accept_demonstrations(config, request, name).model_dump()}


@flow(name="refilter", flow_run_name=run_name)
def refilter(config: Config, iterations: tuple[int, int] | None = None) -> Changes:
    """Filters stored trajectories again, and returns the changes.

    Args:
        config: the resolved config.
        iterations: the first iteration and the iteration after the last; all if not given.
    """
    with open_run(config, create=False):
        return refilter_trajectories(config, iterations)


@flow(name="synthesize", flow_run_name=run_name)
def synthesize(config: Config, iterations: tuple[int, int] | None = None) -> tuple[int, Made]:
    """Makes tasks for the next iteration, and returns its number and the results of the proposals.

    Args:
        config: the resolved config.
        iterations: iterations whose failures count: the first and the iteration after the last; all if not given.
    """
    with open_run(config):
        if config.synthesis.solver == "champion":
            prepare_lake(config, -1)
        return synthesize_now(config, iterations)


@flow(name="quality", flow_run_name=run_name)
def quality(config: Config, iteration: int | None = None) -> Passed:
    """Checks every table of an iteration again, later changes included, and stores the results.

    Args:
        config: the resolved config.
        iteration: number of the iteration, which is negative for imports; the latest iteration with trajectories if not
            given.

    Raises:
        GateRefused: a critical expectation failed without an override.
    """
    with open_run(config, create=False):
        return verify_quality(config, iteration)


@flow(name="render", flow_run_name=run_name)
def render(config: Config) -> RenderResult:
    """Renders the pages of `pretrain` that the lake lacks, and compares the pages with the suites.

    Args:
        config: the resolved config.
    """
    with open_run(config):
        return render_pages(config)


@flow(name="maintain", flow_run_name=run_name)
def maintain(config: Config) -> dict[str, int]:
    """Merges small files, and removes files that no policy's pinned versions and no recent versions need.

    Every iteration does this at its end. This flow is for lakes that are written to without iterations. Readers and
    writers can continue meanwhile.

    Returns:
        The size of the lake in bytes, before and after.
    """
    with open_run(config, create=False):
        return maintain_lake(config)


@boundary("maintain")
def maintain_lake(config: Config) -> dict[str, int]:
    """Run `storage.lake.Lake.maintain`, and return the size of the lake in bytes before and after."""
    lake = run_of(config, create=False).lake
    before = lake.size_bytes()
    lake.maintain()
    after = lake.size_bytes()
    print_line(f"maintain: {before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB after")
    return {"bytes_before": before, "bytes_after": after}
