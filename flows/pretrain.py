"""Define the flow that makes a base policy from rendered pages."""

from prefect import flow

from schemas.config import Config
from tasks.pretrain.train import train_base
from tasks.running.run import open_run, run_name


@flow(name="pretrain", flow_run_name=run_name)
def train(config: Config) -> str:
    """Trains a base from the lake's rendered pages, and registers it; it is never promoted.

    Args:
        config: the resolved config.

    Returns:
        The version of the base.
    """
    with open_run(config, create=False):
        return train_base(config)
