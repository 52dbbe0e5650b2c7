"""The fp32 weights that a training ended with, kept beside the policy it made, for the next training of any method.

A policy is written in its parent's precision, mostly bf16, where neighbours lie 2^-8 of a weight apart: at a small
learning rate most steps of a training are shorter, and one that began from the rounded weights would lose what the
last one moved. So the weights, and if wanted the optimiser's moments, lie in `training/` of the policy's directory, as
a checkpoint that any number of ranks loads. `transformers` and `flywheel export` pass it over. The network of a critic
that stands alone lies there too, without moments.
"""

from pathlib import Path

from learning.checkpoint import Checkpoints, State
from learning.engines.engine import Engine
from learning.launch import PATIENCE
from models.tiny.layout import TRAINING
from schemas.config.training import Keep

WEIGHTS, MOMENTS = "model.", "optimizer."
"""What names begin with in an engine's state."""


def keep_masters(engine: Engine, auxiliary: State, folder: Path, keep: Keep, steps: int) -> None:
    """Writes them below a policy's directory; all ranks call it.

    Args:
        engine: after its last step.
        auxiliary: weights that an objective has beside the policy's.
        folder: the policy's directory, which all ranks reach.
        keep: what of it.
        steps: optimiser steps that the moments have had, in this training and those before.

    Raises:
        CheckpointError: they cannot be written.
    """
    if keep == "nothing":
        return
    kinds = (WEIGHTS, MOMENTS) if keep == "masters+moments" else (WEIGHTS,)
    own = {name: part for name, part in engine.masters().items() if name.startswith(kinds)}
    extra = {"optimizer": engine.optimizer, "moments": len(kinds) == 2, "steps": steps, "auxiliary": bool(auxiliary)}
    with Checkpoints(folder / TRAINING, keep=1, timeout=PATIENCE) as checkpoints:
        checkpoints.save({**own, **auxiliary}, steps, extra, blocking=True)


def take_up_masters(engine: Engine, parent: Path) -> int:
    """Puts what the parent's training ended with in the place of its rounded weights; all ranks call it.

    Moments are taken up if they were kept by a training with the same optimiser.

    Returns:
        How many steps the moments have had; 0 if there are none, and then they begin with zeros.

    Raises:
        CheckpointError: they are damaged, or not of the parent's architecture.
    """
    if not (parent / TRAINING).is_dir():
        return 0
    with Checkpoints(parent / TRAINING, timeout=PATIENCE) as checkpoints:
        extra = checkpoints.manifest().extra
        moments = extra["moments"] and extra["optimizer"] == engine.optimizer and not engine.adapted
        kinds = (WEIGHTS, MOMENTS) if moments else (WEIGHTS,)
        state = {name: part for name, part in engine.weights().items() if name.startswith(kinds)}
        checkpoints.load(state, partial=True)
    steps = extra["steps"] if moments else 0
    engine.restored(steps)
    return steps


def take_up_auxiliary(weights: State, parent: Path) -> None:
    """Puts an objective's own weights, if the parent's training kept any, in the place of rounded ones; all ranks call
    it.

    Raises:
        CheckpointError: they are damaged, or of another architecture.
    """
    if not (parent / TRAINING).is_dir():
        return
    with Checkpoints(parent / TRAINING, timeout=PATIENCE) as checkpoints:
        if checkpoints.manifest().extra.get("auxiliary"):
            checkpoints.load(weights, partial=True)
