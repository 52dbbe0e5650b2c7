"""Checkpoints that reshard: DCP's format on disk, one copy's wait to save, every byte read once to load."""

from learning.checkpoint.checkpoints import Checkpoints, Damaged, Restored, Stall
from learning.checkpoint.export import export
from learning.checkpoint.offline import inspect, reshard, verify
from learning.checkpoint.state import Part, State, Stretch, stretches
from storage.objects import ObjectStore, open_store

__all__ = [
    "Checkpoints",
    "Damaged",
    "ObjectStore",
    "Part",
    "Restored",
    "Stall",
    "State",
    "Stretch",
    "export",
    "inspect",
    "open_store",
    "reshard",
    "stretches",
    "verify",
]
