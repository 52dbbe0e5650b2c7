"""Import an external checkpoint into a lake."""

from prefect import flow

from schemas.config import Config
from tasks.adopt import adopt_checkpoint
from tasks.promote.challenge import challenge_champion, evaluate_challenger
from tasks.running.run import open_run, run_name


@flow(name="adopt", flow_run_name=run_name)
def adopt(config: Config, directory: str, name: str | None = None) -> str:
    """Copies a checkpoint into the lake, evaluates it, and promotes it if it is not worse than the champion.

    Args:
        config: the resolved config.
        directory: a Hugging Face model directory with its weights in safetensors.
        name: the new policy's version; `adopted-NNNN` if not given.

    Returns:
        The new policy's version.
    """
    with open_run(config, create=False):
        version = adopt_checkpoint(config, directory, name)
        evaluate_challenger(config, version)
        challenge_champion(config, version)
        return version
