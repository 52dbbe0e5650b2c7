"""Keep the fp32 weights of policies (`train.keep`), and delete old weights that no training reads.

The fp32 weights are twice as large as the policy, so only the champion and the last few policies keep them. A training
writes a note before it reads the weights of a policy. A sweep first removes the files from the policy's manifest, so
later readers do not use them. Then it looks for notes. Files that a running process reads stay until the next sweep.
"""

import shutil
from contextlib import suppress
from uuid import uuid4

from models.tiny.layout import TRAINING
from storage.lake import Lake
from tasks.shared.lease import Owner
from tasks.shared.paths import cache_folder
from tasks.shared.policies import policies

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
