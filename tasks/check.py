"""What is looked at before anything is spent: the tasks, the disk, the browser."""

import shutil
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from environments.catalog import catalog
from environments.pool import SandboxPool
from learning.engines.fsdp.adapters import require_peft
from models.serving.server import require_server
from rollout.judging import judge_of
from schemas.config import Config
from schemas.failure import FlywheelError, LakeError, UsageError
from schemas.task import JUDGED
from tasks.shared.places import home


@task(name="check", cache_policy=NO_CACHE)
def check_before_spending(config: Config) -> None:
    """Refuses a run that could not end well.

    Raises:
        UsageError: an unknown task, one without a verifier and no judge, or adapters for the small policy.
        FlywheelError: no browser, a checkpoint folder that is not there, no peft where adapters are asked for, no
            answer from the server that is to play.
        LakeError: a disk that is nearly full.
    """
    if any(task.verifier == JUDGED for task in catalog(config)):
        judge_of(config.judge)
    SandboxPool(config.environment)
    if config.policy.base != "tiny" and not Path(config.policy.base).is_dir():
        raise FlywheelError(
            f"`policy.base`: there is no folder {config.policy.base}.", "Name a Hugging Face model folder, or `tiny`."
        )
    require_peft(config.train.lora)
    if config.train.lora.rank and config.policy.base == "tiny":
        raise UsageError("`train.lora.rank`: the small policy has no adapters.", "Set train.lora.rank=0.")
    require_server(config.policy.server)
    places = [home()] if "://" in config.lake.uri else [home(), Path(config.lake.uri).absolute()]
    for place in places:
        _room(place, config.lake.min_free_mb)


def _room(place: Path, least_mb: int) -> None:
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    free_mb = shutil.disk_usage(there).free // 2**20
    if free_mb < least_mb:
        raise LakeError(
            f"The disk of {place} has {free_mb} MB left; `lake.min_free_mb` is {least_mb}.",
            "Free some space, or lower it.",
        )
