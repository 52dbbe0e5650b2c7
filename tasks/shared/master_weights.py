"""Keep the fp32 weights next to policies (`train.keep`), and never delete those that a training reads.

They take twice the bytes of the policies themselves, so only the champion and the last few policies keep them. A
training writes a note that it reads a policy before it asks for the files. A sweep first takes the files out of the
policy's manifest, so that later readers do without them, and looks for notes after that: files that a living process
reads stay until the next sweep.
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
    """Note that this process trains from a policy until its next `sweep_master_weights`, or its end."""
    lake.blobs.store.put(f"{FOLDER}/{version}/{uuid4().hex}.json", Owner.this().model_dump_json().encode())


def sweep_master_weights(lake: Lake, last: int) -> None:
    """Remove the fp32 weights and moments of all policies but the champion and the newest `last`.

    A process calls it after its training has ended.
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
    """Return the readers of a policy, or of any, by the name of the note."""
    store, found = lake.blobs.store, dict[str, Owner]()
    for name in store.sizes(f"{FOLDER}/{version}".rstrip("/")):
        with suppress(FileNotFoundError):  # another sweep found its owner dead
            if name.endswith(".json"):
                found[name] = Owner.model_validate_json(store.get(name))
    return found
