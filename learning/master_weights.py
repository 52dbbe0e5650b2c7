"""Stores master weights: the fp32 weights at a training's end, for the next training.

A policy is written in its parent's precision, usually bf16, whose adjacent values differ by 2^-8 of a weight. With a
small learning rate, most steps are smaller, so a training from the rounded weights would lose the previous training's
updates. So the fp32 weights, and optionally the optimiser's moments, are in `training/` of the policy's directory, as a
checkpoint that any number of ranks can load. `transformers` and `flywheel export` ignore this folder. It also has the
network of a separate critic, without moments. The checkpoint has the hashes of the files with the rounded weights; if
these files are replaced, the checkpoint is ignored.
"""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from learning.checkpoint import Checkpoints, State
from learning.checkpoint.planner import Ranks
from learning.engines.engine import Engine
from learning.launch import PATIENCE
from learning.reports import send
from models.safe import INDEX, weight_files
from models.tiny.layout import CRITIC, TRAINING
from schemas.config.training import Keep

WEIGHTS, MOMENTS = "model.", "optimizer."
"""Prefixes of names in an engine's state."""


def keep_master_weights(
    engine: Engine, auxiliary: State, folder: Path, keep: Keep, steps: int, place: str | Path | None = None
) -> None:
    """Writes the master weights below a policy's directory; all ranks call it.

    Args:
        engine: the engine after its last step.
        auxiliary: an objective's own weights.
        folder: the policy's directory, which all ranks can access.
        keep: selects weights and moments to keep.
        steps: number of optimiser steps of the moments, in this and earlier trainings.
        place: the target, if it differs from the folder.

    Raises:
        CheckpointError: the weights cannot be written.
    """
    if keep == "nothing":
        return
    kinds = (WEIGHTS, MOMENTS) if keep == "masters+moments" else (WEIGHTS,)
    own = {name: part for name, part in engine.masters().items() if name.startswith(kinds)}
    extra = {
        "optimizer": engine.moments_kind,
        "moments": len(kinds) == 2,
        "steps": steps,
        "auxiliary": bool(auxiliary),
        "rounded": [_hashes(folder, critic) for critic in (False, True)] if engine.rank == 0 else [],
    }
    with Checkpoints(place or folder / TRAINING, keep=1, timeout=PATIENCE) as checkpoints:
        checkpoints.save({**own, **auxiliary}, steps, extra, blocking=True)


def load_master_weights(engine: Engine, parent: Path) -> int:
    """Loads the parent's master weights in place of its rounded ones; all ranks call it.

    Moments are loaded only if the parent's training kept them with the same optimiser and number format.

    Returns:
        Number of optimiser steps of the moments; 0 if there are none, so that they start at zero.

    Raises:
        CheckpointError: the weights are damaged, or have another architecture than the parent.
    """
    with master_weights_of(parent) as checkpoints:
        if checkpoints is None:
            if (parent / TRAINING).is_dir() and engine.rank == 0:
                problem = f"Other weights were saved to {parent} than its fp32 weights in {TRAINING}/ were rounded to"
                send(warning=f"{problem}: this training begins from the files.")
            return 0
        extra = checkpoints.manifest().extra
        moments = extra["moments"] and extra["optimizer"] == engine.moments_kind and not engine.adapted
        kinds = (WEIGHTS, MOMENTS) if moments else (WEIGHTS,)
        state = {name: part for name, part in engine.weights().items() if name.startswith(kinds)}
        checkpoints.load(state, partial=True)
    steps = extra["steps"] if moments else 0
    engine.restored(steps)
    return steps


def take_up_auxiliary(weights: State, parent: Path) -> None:
    """Loads an objective's own weights, if the parent's training kept any; all ranks call it.

    Raises:
        CheckpointError: the weights are damaged, or have another architecture.
    """
    with master_weights_of(parent, critic=True) as checkpoints:
        if checkpoints is not None and checkpoints.manifest().extra.get("auxiliary"):
            checkpoints.load(weights, partial=True)


@contextmanager
def master_weights_of(folder: Path, critic: bool = False) -> Iterator[Checkpoints | None]:
    """Opens the fp32 weights of a policy; None if there are none, or if they belong to other weight files. All ranks
    call it."""
    if not (folder / TRAINING).is_dir():
        yield None
        return
    with Checkpoints(folder / TRAINING, timeout=PATIENCE) as checkpoints:
        rounded = checkpoints.manifest().extra.get("rounded", [])
        ranks = Ranks(PATIENCE)
        try:
            fits = ranks.broadcast(lambda: _hashes(folder, critic) in rounded)
        finally:
            ranks.close()
        yield checkpoints if fits else None


def _hashes(folder: Path, critic: bool) -> dict[str, str]:
    """Computes SHA-256 of the files of a policy's weights, or of its critic's, by name."""

    def hashed(path: Path) -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    paths = [folder / CRITIC] if critic else [*weight_files(folder), folder / INDEX]
    paths = sorted(path for path in paths if path.is_file())
    with ThreadPoolExecutor() as pool:
        return {path.name: found for path, found in zip(paths, pool.map(hashed, paths), strict=True)}
