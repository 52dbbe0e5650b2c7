"""Wrap the report in a flow, so that it can be deployed with a schedule."""

from prefect import flow

from apps.report.build import build_report
from flows.deployed import ConfigName, Overrides
from schemas.config import load_config


@flow(name="report", persist_result=False)
def report(config: ConfigName = "", overrides: Overrides = []) -> str:
    """Writes the report page and returns its path.

    Args:
        config: a config file, or a profile such as laptop; empty for flywheel.toml where runs work, else laptop.
        overrides: config keys, one a line, such as train.steps=100.
    """
    return str(build_report(load_config(config or None, overrides)))
