"""Checks before a run spends anything."""

from schemas.config import Config
from tasks.preflight.preflight import require
from tasks.running.boundary import flow_task


@flow_task("check")
def check_before_spending(config: Config) -> None:
    """Refuse a run that could not end well; raises as `tasks.preflight.preflight.require` does."""
    require(config)
