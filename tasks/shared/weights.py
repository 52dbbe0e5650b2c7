"""Load the checkpoint of a policy version as a folder, and its policy; keep the fp32 weights of a few policies.

Old fp32 weights (`train.keep`) are deleted if no training reads them. The fp32 weights are twice as large as the
policy, so only the champion and the last few policies keep them. A training writes a note before it reads the weights
of a policy. A sweep first removes the files from the policy's manifest, so later readers do not use them. Then it looks
for notes. Files that a running process reads stay until the next sweep.
"""

import shutil
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from uuid import uuid4

from learning.engines.choice import unsliced
from models.families.family import ModelFamily
from models.families.registry import family_of
from models.tiny.layout import OWN, TRAINING
from models.vlm import VlmPolicy
from schemas.config import Config
from storage.lake import Lake
from tasks.running.console import err
from tasks.shared.lease import Owner
from tasks.shared.paths import cache_folder
from tasks.shared.policies import policies, policy_row


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


def draws_slices(config: Config, lake: Lake, version: str) -> bool:
    """Check whether trainings of a version draw slices of trajectories instead of samples (`learning.data.slices`)."""
    if config.policy.context != "fold":
        return False
    return not unsliced(config.policy, config.train, checkpoint_folder(lake, version, to_train=True))


FOLDER = "readers"


def read_master_weights(lake: Lake, version: str) -> None:
    """Write a note that this process reads a policy's weights, until its next `sweep_master_weights` or its end."""
    lake.blobs.store.put(f"{FOLDER}/{version}/{uuid4().hex}.json", Owner.this().model_dump_json().encode())


def sweep_master_weights(lake: Lake, last: int) -> None:
    """Remove the fp32 weights and moments of all policies except the champion and the newest `last` policies.

    A process calls this after the end of its training.
    """
    for note, owner in _notes(lake).items():
        if owner.is_of(Owner.this()) or owner.gone:
            lake.blobs.store.delete(note)
    part = f"/{TRAINING}/"
    stored = {name.split(part)[0] for name in lake.blobs.store.sizes("checkpoints") if part in name}
    for row in [*reversed(policies(lake).values())][last:]:
        if row.status != "champion" and row.checkpoint in stored:
            _sweep(lake, row.policy_version, row.checkpoint)


def _sweep(lake: Lake, version: str, checkpoint: str) -> None:
    if lake.blobs.drop(checkpoint, TRAINING, lambda: bool(_notes(lake, version))):
        for copy in cache_folder(lake, version).glob(f"*/{TRAINING}"):
            shutil.rmtree(copy.parent, ignore_errors=True)


def _notes(lake: Lake, version: str = "") -> dict[str, Owner]:
    """Return the readers of a policy, or of all policies, by the name of the note."""
    store, found = lake.blobs.store, dict[str, Owner]()
    for name in store.sizes(f"{FOLDER}/{version}".rstrip("/")):
        with suppress(FileNotFoundError):  # another sweep removed the note of a dead process
            if name.endswith(".json"):
                found[name] = Owner.model_validate_json(store.get(name))
    return found
