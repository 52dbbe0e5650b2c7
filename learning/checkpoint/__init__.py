"""Checkpoints that reshard: DCP's format on disk, one copy's wait to save, every byte read once to load."""

from learning.checkpoint.checkpoints import Checkpoints
from learning.checkpoint.state import Part, State, Stretch, stretches

__all__ = ["Checkpoints", "Part", "State", "Stretch", "stretches"]
