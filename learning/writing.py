"""Writes a training's directory under a temporary name and renames it when it is whole, while other ranks wait."""

import errno
import json
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from learning.checkpoint import ObjectStore, open_store
from learning.checkpoint.planner import Ranks
from learning.job import RESULT as IN_STORE
from learning.job import Job, identity, read_job
from learning.learner import Learner
from models.tiny.layout import OWN, RESULT
from schemas.failure import CheckpointError, UsageError

FULL = "No space left on device"
"""Text of the library's error when the disk is full."""


def is_finished(job: Job) -> bool:
    """Checks whether this training has made its directory already.

    Raises:
        CheckpointError: the path holds something else.
    """
    if not job.out.exists():
        return False
    try:
        if identity(read_job(job.out / "job.json")) == identity(job):
            return True
    except UsageError:
        pass
    raise CheckpointError(f"{job.out} is already there.", "Name another directory or remove it.")


def result_of(job: Job) -> dict[str, Any]:
    """Reads the final loss and numbers of a finished training; empty for a training by an earlier version."""
    path = job.out / RESULT
    return json.loads(path.read_text()) if path.exists() else {}


def write_checkpoint(
    learner: Learner, job: Job, ranks: Ranks, steps: int | None = None, result: Mapping[str, Any] | None = None
) -> None:
    """Writes weights, the parent's other files and the job; then renames the directory. All ranks call it.

    Args:
        learner, job, ranks: the training.
        steps: number of all steps at the training's end; not given for a publication of weights.
        result: the final loss and numbers, for a start that finds the training finished.

    Raises:
        CheckpointError: another trainer on this machine writes to the same place, or the disk is full.
    """
    try:
        making = ranks.broadcast(lambda: _begin(job))
        learner.write(making, steps)
        ranks.broadcast(lambda: _finish(job, making, result))
    except (OSError, SafetensorError) as error:
        if isinstance(error, SafetensorError) and FULL not in str(error):
            raise
        if isinstance(error, OSError) and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(job.out.parent).free / 1e6
        raise CheckpointError(
            f"{job.out.parent}: the disk is full, {free:.0f} MB are free; the weights are not written.",
            "Free some space, or set FLYWHEEL_HOME to a larger disk. The same command continues.",
        ) from error


def sweep_leftovers(out: Path) -> None:
    """Removes leftovers of killed trainers of this machine that wrote `out`.

    Raises:
        CheckpointError: a trainer is still writing.
    """
    here = f"{out.name}.making-{socket.gethostname()}-"
    for path in out.parent.glob(f"{here}*"):
        process = int(path.name.removeprefix(here))
        if process != os.getpid() and Path(f"/proc/{process}").exists():
            problem = f"The process {process} is writing {path}."
            raise CheckpointError(problem, "Wait for it or end it: one training writes to a place.")
        shutil.rmtree(path)


def _begin(job: Job) -> Path:
    sweep_leftovers(job.out)
    if job.store:
        store = open_store(job.store)
        for name in store.sizes(IN_STORE):
            store.delete(name)
    making = job.out.with_name(f"{job.out.name}.making-{socket.gethostname()}-{os.getpid()}")
    shutil.copytree(job.parent, making, ignore=shutil.ignore_patterns(*OWN))
    return making


def _finish(job: Job, making: Path, result: Mapping[str, Any] | None) -> None:
    (making / "job.json").write_text(job.model_dump_json(indent=1))
    if result is not None:
        (making / RESULT).write_text(json.dumps(result, sort_keys=True))
    if job.store:
        _upload(making, open_store(f"{job.store}/{IN_STORE}"))
        shutil.rmtree(making)  # other machines would not find it
        return
    making.rename(job.out)


def _upload(folder: Path, store: ObjectStore) -> None:
    local = open_store(folder)
    for name, size in local.sizes().items():
        with store.create(name, size) as sink:
            for part in local.chunks(name, size):
                sink.write(part)
