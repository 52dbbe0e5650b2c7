"""Load the checkpoint of a policy version as a folder, and its policy."""

from fnmatch import fnmatch
from pathlib import Path

from models.families.family import ModelFamily
from models.families.registry import family_of
from models.tiny.layout import OWN, TRAINING
from models.vlm import VlmPolicy
from schemas.config import Config
from storage.lake import Lake
from tasks.running.console import err
from tasks.shared.master_weights import read_master_weights
from tasks.shared.paths import cache_folder
from tasks.shared.policies import policy_row


def checkpoint_folder(lake: Lake, version: str, to_train: bool = False) -> Path:
    """Return a local folder with the checkpoint of a version, fetched from the lake if necessary.

    With `to_train`, the folder includes the files for the next training. No sweep deletes these files before the
    training ends.
    """
    row = policy_row(lake, version)
    without = () if to_train else (f"{TRAINING}/",)
    if to_train:
        read_master_weights(lake, row.policy_version)
        if TRAINING in lake.blobs.dropped(row.checkpoint):
            err().print(f"{row.policy_version} has no fp32 weights any more: training begins from its rounded ones")
    return lake.blobs.get_directory(row.checkpoint, cache_folder(lake, row.policy_version), without)


def unweighted_folder(lake: Lake, version: str) -> Path:
    """Return a local folder with a version's checkpoint, without its weights and the files for the next training."""
    row = policy_row(lake, version)
    own = tuple(
        name for name in lake.blobs.sums(row.checkpoint) if any(fnmatch(name.split("/")[0], one) for one in OWN)
    )
    return lake.blobs.get_directory(row.checkpoint, cache_folder(lake, row.policy_version), own)


def load_policy(config: Config, lake: Lake, version: str) -> VlmPolicy:
    """Load the policy of a version."""
    row = policy_row(lake, version)
    return VlmPolicy(checkpoint_folder(lake, version), config.policy, version=row.policy_version)


def policy_family(config: Config, lake: Lake, version: str) -> ModelFamily:
    """Return the family of a version to train. The family defines the format of the training text."""
    return family_of(config.policy, checkpoint_folder(lake, version, to_train=True))
