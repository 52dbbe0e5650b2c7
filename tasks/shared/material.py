"""What a training is made from: the recipe, and what one method reads of it."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from learning.data.sample import SCREENSHOT_COLUMNS, read_screenshots, write_screenshot_batches
from schemas.config import Config
from schemas.config.training import TrainConfig
from schemas.failure import LakeError
from schemas.policy import Status
from storage.lake import Lake


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a policy is made from, beside the config."""

    version: str
    parent: str
    iteration: int
    pins: Mapping[str, int]
    status: Status = "candidate"
    """What becomes of the policy: a candidate is measured and may be promoted."""


@dataclass(frozen=True, slots=True)
class Material:
    """What one method trains on, and how long."""

    write: Callable[[Path], Collection[str]]
    """Writes the samples to a file that the trainer reads; gives the sha256 of every screenshot that they show."""
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


def seed_of(config: Config, recipe: Recipe) -> int:
    """The seed of all that is random in a training."""
    return config.seed * 1000 + recipe.iteration


def pngs_of(lake: Lake, digests: Sequence[str], version: int | None = None) -> dict[str, bytes]:
    """Screenshots by their sha256, at a version of their table; of the latest if none is given."""
    found = lake.read("screenshots", ["sha256", "png"], {"sha256": list(digests)}, version=version)
    return dict(zip(found["sha256"].to_pylist(), found["png"].to_pylist(), strict=True))


def write_pictures(path: Path, lake: Lake, digests: Collection[str], version: int | None) -> None:
    """Writes screenshots, at a version of their table, to a file that the trainer reads.

    Raises:
        LakeError: one is not in the lake.
    """
    found = lake.batches("screenshots", SCREENSHOT_COLUMNS, {"sha256": list(digests)}, version)
    write_screenshot_batches(path, found)
    missing = set(digests) - read_screenshots(path).keys()
    if missing:
        raise LakeError(
            f"{len(missing)} of {len(digests)} screenshots are not in the lake, {min(missing)} for one.",
            "Restore table `screenshots`, or delete the trajectories that show them.",
        )


def few_steps(train: TrainConfig, samples: int, epochs: float, batch: int) -> tuple[int, TrainConfig]:
    """Steps that go over the samples so often, and a trainer's config whose rate stays, as in DAPO.

    Such a training takes few steps, and the next one goes on from here.
    """
    steps = max(1, math.ceil(samples * epochs / batch))
    return steps, train.model_copy(update={"batch": batch, "warmup": steps // 10, "decay": 0.0})
