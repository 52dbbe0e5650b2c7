"""The weights behind a policy's row: as a folder, and as the policy that runs them."""

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
    """A local folder with the checkpoint of a version, fetched from the lake if need be.

    What only its next training needs is fetched if it is `to_train`, and nobody sweeps it before that has ended.
    """
    row = policy_row(lake, version)
    without = () if to_train else (f"{TRAINING}/",)
    if to_train:
        read_master_weights(lake, row.policy_version)
        if TRAINING in lake.blobs.dropped(row.checkpoint):
            err().print(f"{row.policy_version} has no fp32 weights any more: training begins from its rounded ones")
    return lake.blobs.get_directory(row.checkpoint, cache_folder(lake, row.policy_version), without)


def unweighted_folder(lake: Lake, version: str) -> Path:
    """A local folder with a version's checkpoint but for what only its weights or its next training need."""
    row = policy_row(lake, version)
    own = tuple(
        name for name in lake.blobs.sums(row.checkpoint) if any(fnmatch(name.split("/")[0], one) for one in OWN)
    )
    return lake.blobs.get_directory(row.checkpoint, cache_folder(lake, row.policy_version), own)


def load_policy(config: Config, lake: Lake, version: str) -> VlmPolicy:
    """The policy of a version."""
    row = policy_row(lake, version)
    return VlmPolicy(checkpoint_folder(lake, version), config.policy, version=row.policy_version)


def policy_family(config: Config, lake: Lake, version: str) -> ModelFamily:
    """The family of a version that is to be trained, which says how it writes what it is to learn."""
    return family_of(config.policy, checkpoint_folder(lake, version, to_train=True))
