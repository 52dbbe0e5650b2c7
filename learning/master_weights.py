"""Master weights: the fp32 weights at a training's end, kept in the policy's directory for the next training.

A policy is written in its parent's precision, mostly bf16, where neighbours lie 2^-8 of a weight apart: at a small
learning rate most steps of a training are shorter, and a training that began from the rounded weights would lose the
last one's updates. So the weights, and if wanted the optimiser's moments, lie in `training/` of the policy's directory,
as a checkpoint that any number of ranks loads. `transformers` and `flywheel export` ignore it. The network of a
separate critic lies there too, without moments. The checkpoint names the hashes of the files that its weights were
rounded to; if those files were replaced, it is ignored.
"""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from learning.checkpoint import Checkpoints, State
from learning.checkpoint.ranks import Ranks
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
    """Writes them below a policy's directory; all ranks call it.

    Args:
        engine: after its last step.
        auxiliary: an objective's own weights.
        folder: the policy's directory, which all ranks reach.
        keep: which of them are kept.
        steps: optimiser steps that the moments have had, in this training and those before.
        place: the target, if not that directory.

    Raises:
        CheckpointError: they cannot be written.
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

    Moments are loaded only if a training with the same optimiser and the same number format kept them.

    Returns:
        How many steps the moments have had; 0 if there are none; they then start at zero.

    Raises:
        CheckpointError: they are damaged, or not of the parent's architecture.
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
        CheckpointError: they are damaged, or of another architecture.
    """
    with master_weights_of(parent, critic=True) as checkpoints:
        if checkpoints is not None and checkpoints.manifest().extra.get("auxiliary"):
            checkpoints.load(weights, partial=True)


@contextmanager
def master_weights_of(folder: Path, critic: bool = False) -> Iterator[Checkpoints | None]:
    """Opens the fp32 weights of a policy; None if there are none, or of other weight files. All ranks call it."""
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
