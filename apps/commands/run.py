"""Implement `flywheel run`: quick checks, iterations, the report; and `flywheel collect`, only the first stages."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from apps import last_config
from apps.calling import call
from apps.commands.status import show_status, status_of
from apps.options import open_lake, print_json
from apps.report.build import build_report
from environments.registry import left_out
from rollout.failures import FailedTask
from schemas.config import Config
from schemas.failure import GateRefused, LakeError
from schemas.table import Metrics
from schemas.tables.stage import HEADLINE, STAGES
from storage.lake import Lake
from tasks.preflight.preflight import require
from tasks.preflight.unused_keys import for_others
from tasks.running.budget import Pause, require_budget, require_unpaused
from tasks.running.console import err, log_progress, out
from tasks.running.iterations import next_iteration
from tasks.running.progress_lines import progress_lines
from tasks.running.stage import result_of
from tasks.shared.lease import require_free
from tasks.shared.paths import lake_if_any
from tasks.shared.status import begun_iterations, failing, require_any

RESUMING = "Resuming"
"""First word of the message of a run that continues an iteration."""


def turn(config: Config, iterations: int, file: Path | None = None) -> tuple[Path, Pause | None]:
    """Runs `iterations` iterations, including an unfinished one.

    Args:
        config: the resolved config.
        iterations: number of iterations.
        file: the config's file or profile, which later commands in the folder take; None for the default.

    Returns:
        The path of the report, and the pause that ended the run, if any.

    Raises:
        FlywheelError: a check fails or another run is active in the lake, before any work starts; or a stage fails.
        Paused: the lake is paused.
        GateRefused: the quality gate stopped an iteration; the report is still written.
    """
    with _begun(config, file):
        try:
            pause = call("flows.flywheel.flywheel", config, iterations)
        except GateRefused:
            err().print(f"The failing rows are in the report: {build_report(config)}")
            raise
        return build_report(config), pause


@dataclass(frozen=True, slots=True)
class IterationData:
    """The data of an iteration."""

    iteration: int
    stages: dict[str, Metrics]
    """Metrics of the finished stages among `collect` and `filter`."""
    failing: list[FailedTask]
    """Tasks without a working trajectory."""
    pause: Pause | None
    """The pause that ended the stages early."""


def collect(config: Config, file: Path | None = None) -> IterationData:
    """Rolls out and filters the next iteration's trajectories, or the remaining ones; `turn` continues from this state.

    Args:
        config: the resolved config.
        file: as in `turn`.

    Raises:
        FlywheelError, Paused: as in `turn`.
    """
    with _begun(config, file):
        pause = call("flows.flywheel.collect", config)
    lake = open_lake(config)
    iteration = next_iteration(lake)
    found = {stage: result_of(lake, iteration, stage) for stage in ("collect", "filter")}
    stages = {stage: numbers for stage, numbers in found.items() if numbers}
    return IterationData(iteration, stages, failing(lake, iteration), pause)


@contextmanager
def _begun(config: Config, file: Path | None = None) -> Iterator[None]:
    """Checks in seconds that no other run and no pause stops an iteration, then that the config's parts exist and work,
    and prints progress lines meanwhile. Raises the errors of `turn`."""
    lake = None
    with suppress(LakeError, OSError):  # the config's checks name the reason
        lake = lake_if_any(config)
    if lake:
        require_free(lake)
        require_unpaused(lake)
    beginning = _beginning(config, lake)
    resuming = beginning.startswith(RESUMING)
    with progress_lines("Checking the config first" if resuming else f"{beginning}: first its checks"):
        require(config)
        if resuming:
            log_progress(f"{beginning}.")
        report_left_out(config)
        if idle := for_others(config, sections=False):
            err().print(idle)
        if lake:
            require_budget(lake, config.budget)
        last_config.record(file, config.lake)
        yield


def _beginning(config: Config, lake: Lake | None) -> str:
    """Describes where a run begins or continues."""
    if lake is None:
        return f"Starting iteration 0 of a new lake at {config.lake.uri}"
    iteration = next_iteration(lake)
    begun = [stage for stage in STAGES if result_of(lake, iteration, stage) is not None]
    if begun:
        return f"{RESUMING} iteration {iteration} of the lake at {lake.uri} after {begun[-1]}"
    return f"Starting iteration {iteration} of the lake at {lake.uri}"


def report_left_out(config: Config) -> None:
    """Prints to standard error the optional environments that this machine cannot run, with the missing requirement."""
    for name, why in left_out(config).items():
        err().print(f"environments.{name} is left out with its tasks: {why}", markup=False)


def require_collected(config: Config) -> None:
    """Raises EnvironmentDown if every trajectory of the last begun iteration failed."""
    lake = open_lake(config)
    if begun := begun_iterations(lake):
        require_any(lake, begun[-1].iteration)


def show_turned(config: Config, report: Path, as_json: bool) -> None:
    """Prints the status of the lake, and the path of the report."""
    lake = open_lake(config)
    if as_json:
        print_json({**status_of(lake), "report": str(report)})
    else:
        show_status(lake)
        out().print(f"report {report}", markup=False)


def show_collected(collected: IterationData, as_json: bool) -> None:
    """Prints the data of an iteration and the command that continues it."""
    if as_json:
        print_json({"iteration": collected.iteration, **collected.stages})
        return
    stages = "; ".join(f"{stage}: {numbers[HEADLINE]}" for stage, numbers in collected.stages.items())
    out().print(f"iteration {collected.iteration}: {stages or 'nothing yet'}", markup=False)
    for one in collected.failing:
        out().print(one.text, markup=False)
    out().print("`flywheel run` continues this iteration", markup=False)
