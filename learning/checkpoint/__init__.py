"""Saves and loads checkpoints: DCP's format on disk, saves that wait for one copy only, and loads for any number of
ranks."""

from learning.checkpoint.checkpoints import Checkpoints, Damaged, Restored
from learning.checkpoint.manifest import read_manifest
from learning.checkpoint.offline import inspect, read_tensors, reshard, verify
from learning.checkpoint.state import Part, State, Stretch, stretches
from storage.objects import ObjectStore, open_store

__all__ = [
    "Checkpoints",
    "Damaged",
    "ObjectStore",
    "Part",
    "Restored",
    "State",
    "Stretch",
    "inspect",
    "open_store",
    "read_manifest",
    "read_tensors",
    "reshard",
    "stretches",
    "verify",
]
