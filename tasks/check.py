"""Check a run before it uses any budget."""

from schemas.config import Config
from tasks.preflight.preflight import require
from tasks.running.boundary import flow_task


@flow_task("check")
def check_before_spending(config: Config) -> None:
    """Refuse a run that would fail. Raises the errors of `tasks.preflight.preflight.require`."""
    require(config)
