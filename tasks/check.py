"""Checks before a run spends anything."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.config import Config
from tasks.preflight.preflight import require


@task(name="check", cache_policy=NO_CACHE)
def check_before_spending(config: Config) -> None:
    """Refuse a run that could not end well; raises as `tasks.preflight.preflight.require` does."""
    require(config)
