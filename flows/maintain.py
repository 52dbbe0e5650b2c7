"""Maintain a lake: merge small files, and remove those that no version needs."""

from prefect import flow

from schemas.config import Config
from tasks.maintain import maintain_lake
from tasks.running.run import open_run, run_name


@flow(name="maintain", flow_run_name=run_name)
def maintain(config: Config) -> dict[str, int]:
    """Merges small files, and removes those that neither a policy's pinned versions nor the last day's versions need.

    Every iteration does so at its end; this is for lakes that are written to without one. Readers and writers continue.

    Returns:
        The lake's bytes before and after.
    """
    with open_run(config, create=False):
        return maintain_lake(config)
