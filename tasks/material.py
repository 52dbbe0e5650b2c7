"""What a training is made from: the recipe, and what one method reads of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.config.sections import TrainConfig


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a policy is made from, beside the config."""

    version: str
    parent: str
    iteration: int
    pins: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Material:
    """What one method trains on, and how long."""

    screenshots: list[str]
    """sha256 of every screenshot that is shown."""
    write: Callable[[Path], None]
    """Writes the samples to a file that the trainer reads."""
    steps: int
    learning_rate: float
    train: TrainConfig
    """The trainer's, as this method wants it."""
    said: str
    """What it is, for people."""
    nothing: str = ""
    """Why there is nothing to train on; empty if there is something."""
    numbers: dict[str, Any] = field(default_factory=dict)
    """Kept with the policy's metrics."""
