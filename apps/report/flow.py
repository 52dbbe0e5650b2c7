"""The report as a flow, so that it can be deployed with a schedule."""

from prefect import flow

from apps.report.build import build_report
from schemas.config import Config


@flow(name="report")
def report(config: Config) -> str:
    """Writes the report page and returns its path."""
    return str(build_report(config))
