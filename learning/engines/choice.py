"""Chooses the engine of a model, and refuses options of other engines by name instead of ignoring them."""

from pathlib import Path
from typing import TYPE_CHECKING

from learning.algorithms.method import DataSource, Optimizer, method_of
from models.tiny.layout import is_tiny, read_config
from schemas.config.hub import SMALL
from schemas.config.policy import PolicyConfig
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
    "lora.rank", "token_cap", "share_prompts", "replicas", "compiled", "experts", "activation_checkpointing",
    "precision", "device", "memory",
)  # fmt: skip
"""Options and sections of `train` that the small policy does not read, but for `memory.freeze_vision`; `device` counts
only if it is a GPU."""


def engine_of(job: "Job", rank: int, world: int) -> "Engine":
    """Makes the engine for the job's parent.

    Raises:
        CheckpointError: no engine supports such a parent.
        UsageError: the job sets an option that the engine does not have.
    """
    small = is_tiny(read_config(job.parent))
    check_options(job.train, small)
    if small:
        from learning.engines.tiny.engine import TinyEngine

        return TinyEngine(job, rank, world)
    # importing transformers takes seconds, which the small policy avoids
    from learning.engines.fsdp.engine import FsdpEngine

    return FsdpEngine(job, rank, world)


def optimizer_of(checkpoint: Path) -> Optimizer:
    """Returns the optimiser of the engine that trains a checkpoint; raises `CheckpointError` if it is unreadable."""
    return "muon" if is_tiny(read_config(checkpoint)) else "adamw"


def check_training(train: TrainConfig, base: str) -> float:
    """Returns the learning rate of trainings of this `policy.base`.

    Raises:
        UsageError: the config sets an option that the method or the model does not have, or freezes a vision tower with
            random weights. The check comes before any cost arises.
    """
    small = is_small(base)
    check_options(train, small)
    if train.memory.freeze_vision and base == SMALL:
        raise UsageError(
            "`train.memory.freeze_vision` is true, and `policy.base=tiny` has random weights.",
            "Set it to false, or begin from a base: policy.base=pretrained.",
        )
    if method_of(train).source is DataSource.PAGES:
        raise UsageError(
            f"`train.method={train.method}` makes a base from rendered pages, not from trajectories.",
            "Use `flywheel pretrain train`, and set policy.base to its result.",
        )
    if method_of(train).source is DataSource.REPLIES and small:
        raise UsageError(
            f"`train.method={train.method}`: the small policy has its own tokenizer, and no served teacher has it.",
            "Set policy.base to a model directory, and train.opd to a larger model with its tokenizer.",
        )
    return method_of(train).rate(train, "muon" if small else "adamw")


def unsliced(policy: PolicyConfig, train: TrainConfig, parent: Path) -> str:
    """Returns why a training draws replies instead of slices (`learning.data.slices`); empty if it draws slices.

    Args:
        policy, train: settings of the policy and of the training.
        parent: checkpoint to start from.
    """
    if policy.context != "fold":
        return "the window of screens slides"
    small = is_tiny(read_config(parent))
    return method_of(train).alone or ("the small policy reads its screens before the text" if small else "")


def is_small(base: str) -> bool:
    """Checks whether a `policy.base` is the small policy; raises `CheckpointError` if it cannot be read."""
    return base == SMALL or is_tiny(read_config(Path(base)))


def check_options(train: TrainConfig, small: bool) -> None:
    """Raises `UsageError` that names a set option which the model's engine does not read."""
    for name in _set_in_vain(train, small):
        whose = "the small policy does not have it" if small else "only the small policy is trained so"
        raise UsageError(f"`train.{name}`: {whose}.", "Remove it from the config.")


def without_ignored(train: TrainConfig, small: bool) -> TrainConfig:
    """Returns a stored training's settings without options that its engine does not read, which older versions
    accepted."""
    sections = {name.partition(".")[0] for name in _set_in_vain(train, small)}
    return train.model_copy(update={name: getattr(TrainConfig(), name) for name in sections})


def _set_in_vain(train: TrainConfig, small: bool) -> list[str]:
    found = changed_keys(train, TrainConfig(), OTHERS_ONLY if small else SMALL_ONLY)
    plain = {
        "device": train.device != "cuda",  # as the small policy trains
        "compiled": train.compiled is not True,
        "memory.freeze_vision": True,
    }
    return [key for key in found if not plain.get(key)]
