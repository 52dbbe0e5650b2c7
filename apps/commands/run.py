"""`flywheel run`: quick checks, the wheel, the report."""

from pathlib import Path

from apps.calling import call
from apps.commands.status import show_status, status_of
from apps.environment import make_prefect_home
from apps.lakes import open_lake
from apps.options import print_json
from apps.report.build import build_report
from schemas.config import Config
from schemas.failure import GateRefused
from tasks.preflight.preflight import require
from tasks.preflight.unread import for_others
from tasks.running.budget import require_budget
from tasks.running.console import err, out
from tasks.running.pausing import Pause, require_unpaused
from tasks.shared.paths import lake_if_any
from tasks.turning import require_free

AHEAD = ("torch", "great_expectations")
FIRST = ("transformers.models.qwen3_vl.modeling_qwen3_vl", *AHEAD)
"""In a new lake: the small policy is built of it."""


def turn(config: Config, iterations: int) -> tuple[Path, Pause | None]:
    """Turns the wheel by `iterations`, an unfinished one included.

    Returns:
        Where the report is; and the pause that ended it, if one did.

    Raises:
        FlywheelError: a check fails, or another run turns the lake, before anything is spent; or a stage does.
        Paused: the lake's wheel is paused.
        GateRefused: the quality gate stopped an iteration; the report is written all the same.
    """
    make_prefect_home()
    require(config)
    if idle := for_others(config, sections=False):
        err().print(idle)
    if lake := lake_if_any(config):
        require_free(lake)
        require_unpaused(lake)
        require_budget(lake, config.budget)

    try:
        pause = call("flows.flywheel.flywheel", config, iterations, ahead=AHEAD if lake else FIRST)
    except GateRefused:
        err().print(f"The failing rows are in the report: {build_report(config)}")
        raise
    return build_report(config), pause


def show_turned(config: Config, report: Path, as_json: bool) -> None:
    """Where the wheel stands now, and the report."""
    lake = open_lake(config)
    if as_json:
        print_json({**status_of(lake), "report": str(report)})
    else:
        show_status(lake)
        out().print(f"report {report}", markup=False)
