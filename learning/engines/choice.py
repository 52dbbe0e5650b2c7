"""Chooses the engine of a model, and refuses options of another engine by name instead of ignoring them."""

from pathlib import Path
from typing import TYPE_CHECKING

from learning.algorithms.method import Optimizer, method_of
from models.tiny.layout import is_tiny, read_config
from schemas.config.section import changed_keys
from schemas.config.training import TrainConfig
from schemas.failure import UsageError

if TYPE_CHECKING:
    from learning.engines.engine import Engine
    from learning.job import Job

SMALL_ONLY = (
    "grounding", "reading", "copying", "words", "soft_bins", "shift", "steps_first", "learning_rate_first",
)  # fmt: skip
"""Options of `train` that only the small policy reads."""
OTHERS_ONLY = (
    "lora.rank", "token_cap", "replicas", "compiled", "experts", "activation_checkpointing", "precision", "device",
    "memory",
)  # fmt: skip
"""Options and sections of `train` that it does not read; `device` only where it is a GPU."""


def engine_of(job: "Job", rank: int, world: int) -> "Engine":
    """The engine for the job's parent.

    Raises:
        CheckpointError: there is none for such a parent.
        UsageError: an option that it does not have.
    """
    small = is_tiny(read_config(job.parent))
    check_options(job.train, small)
    if small:
        from learning.engines.tiny.engine import TinyEngine

        return TinyEngine(job, rank, world)
    # transformers takes seconds that the small policy need not wait for
    from learning.engines.fsdp.engine import FsdpEngine

    return FsdpEngine(job, rank, world)


def optimizer_of(checkpoint: Path) -> Optimizer:
    """The optimiser of the engine that trains a checkpoint; raises `CheckpointError` if it cannot be read."""
    return "muon" if is_tiny(read_config(checkpoint)) else "adamw"


def check_training(train: TrainConfig, base: str) -> float:
    """The learning rate of trainings of this `policy.base`.

    Raises:
        UsageError: before anything is spent, an option that the method or the model does not have.
    """
    small = is_small(base)
    check_options(train, small)
    return method_of(train).rate(train, "muon" if small else "adamw")


def is_small(base: str) -> bool:
    """Whether a `policy.base` is the small policy; raises `CheckpointError` if it cannot be read."""
    return base == "tiny" or is_tiny(read_config(Path(base)))


def check_options(train: TrainConfig, small: bool) -> None:
    """Raises `UsageError`, naming it, for an option that was set and that the model's engine does not read."""
    for name in _set_in_vain(train, small):
        whose = "the small policy does not have it" if small else "only the small policy is trained so"
        raise UsageError(f"`train.{name}`: {whose}.", "Remove it from the config.")


def without_ignored(train: TrainConfig, small: bool) -> TrainConfig:
    """A stored training's settings without those that its model's engine never read: they were not refused once."""
    sections = {name.partition(".")[0] for name in _set_in_vain(train, small)}
    return train.model_copy(update={name: getattr(TrainConfig(), name) for name in sections})


def _set_in_vain(train: TrainConfig, small: bool) -> list[str]:
    found = changed_keys(train, TrainConfig(), OTHERS_ONLY if small else SMALL_ONLY)
    return [key for key in found if key != "device" or train.device == "cuda"]  # the small policy trains on the CPU
