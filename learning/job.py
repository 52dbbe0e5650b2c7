"""Defines the training job: all inputs of a trainer process, as a JSON file that is stored with the new checkpoint.

The module also has the identity of a job and the paths of its checkpoints, and does not import torch. The identity
covers everything that determines a training's numbers, such as parent, samples, seed, steps and rates. It does not
cover the number of ranks and the distribution of work, so a training can resume on another number of ranks.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.config.policy import PolicyConfig
from schemas.config.training import TrainConfig
from schemas.failure import UsageError
from schemas.table import Metrics

KEPT = {
    "loss", "samples_per_s", "seconds", "ready_s", "waited_s", "processes", "device", "machines", "restarts",
}  # fmt: skip
"""Fields of the trainer's report that are stored, together with the method's own numbers."""
RESULT = "result"
"""Folder of the training's result, below a job's store."""
PARENT = "FLYWHEEL_PARENT"
"""Environment variable with the process id of a trainer's starter, if the trainer must end with the starter, so that no
two trainers write to one place."""


class Job(BaseModel):
    """A training from a parent checkpoint to a new checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parent: Path
    """Checkpoint directory to start from."""
    out: Path
    """Directory to make; it appears only when it is whole."""
    samples: Path
    """File of the method's samples, written for example by `learning.data.sample.write_samples`."""
    screenshots: Path
    """File of `learning.data.sample.write_screenshots`."""
    steps: Annotated[int, Field(ge=1)]
    """Number of optimiser steps; ignored with a stream, whose batches decide."""
    learning_rate: Annotated[float, Field(gt=0)]
    seed: int = 0
    stream: Path | None = None
    """Folder of `learning.data.stream` in which batches appear during the training; `samples` is the first batch."""
    trace: Path | None = None
    """Folder in which every rank records its samples of each step, for an audit; None records nothing."""
    store: str = ""
    """Address of checkpoints and result if the machines share no folder; `out` is then local to each machine."""
    policy: PolicyConfig = PolicyConfig()
    train: TrainConfig = TrainConfig()

    @property
    def freezes_vision(self) -> bool:
        """Returns whether a training of the small policy leaves its vision tower as it is."""
        asked = self.train.memory.freeze_vision
        return self.policy.given if asked is None else asked

    @property
    def profiles(self) -> Path:
        """Returns the folder of the traces of `train.profile`, next to the checkpoint."""
        return self.out.with_name("profile")


class TrainerReport(BaseModel):
    """A trainer's message to its starter (`learning.reports.send`), with only some fields set, or all messages
    merged."""

    model_config = ConfigDict(frozen=True)

    waiting: str = ""
    """Message about the training that uses the GPU, while this training waits."""
    processes: int = 1
    device: str = "cpu"
    machines: int = 1
    gpus: Mapping[str, int] = {}
    """Number of GPUs by machine name, if there are several machines."""
    restarts: int = 0
    """Number of restarts from a checkpoint, within this run."""
    damaged: int | None = None
    """Step of a checkpoint that could not be loaded; `problem` and `aside` give the error and its new path."""
    problem: str = ""
    aside: str | None = None
    warning: str = ""
    resumed: int | None = None
    """Step of the checkpoint from which the training resumed."""
    step: int | None = None
    steps: int = 0
    loss: float = 0.0
    samples_per_s: float = 0.0
    measures: Mapping[str, float] = {}
    """Measures of the steps since the last report, by name (`schemas.tables.policy.TrainingStep`)."""
    published: int | None = None
    """Number of updates of the newest weights that actors may load."""
    checkpoint: str | None = None
    seconds: float = 0.0
    ready_s: float = 0.0
    waited_s: float = 0.0
    numbers: Mapping[str, Any] = {}
    """Numbers that the method reports at the end."""
    error: str = ""

    def then(self, later: "TrainerReport") -> "TrainerReport":
        """Merges two reports; the later one's fields win."""
        return self.model_copy(update={name: getattr(later, name) for name in later.model_fields_set})

    @property
    def metrics(self) -> Metrics:
        """Returns the metrics that are stored with the trained policy."""
        kept = self.model_dump(include=KEPT, exclude_unset=True)
        kept |= {name: at for name, at in (("resumed_at", self.resumed), ("set_aside", self.aside)) if at is not None}
        return {**kept, **self.numbers}


def read_job(path: Path) -> Job:
    """Reads a job from a file; raises `UsageError` that names the invalid field."""
    try:
        return Job.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(f"{path}: {error}.") from error


WORK = (
    "launch", "machines", "restarts", "hung_s", "processes", "threads", "device", "balance", "sequence_plans",
    "share_prompts", "token_cap", "replicas", "compiled", "activation_checkpointing",
    "checkpoint_every", "keep", "keep_policies", "profile",
)  # fmt: skip
"""Settings that change the distribution of work, but not the result."""


def steps_folder(job: Job) -> Path:
    """Returns the folder of a job's checkpoints: next to its result, by its identity."""
    return job.out.with_name(f"{job.out.name}.steps") / identity(job)


def steps_place(job: Job) -> str:
    """Returns the place where the ranks write checkpoints: `steps_folder`, or the job's place in the store."""
    return f"{job.store}/steps" if job.store else str(steps_folder(job))


def sweep(job: Job) -> None:
    """Removes leftovers of other trainings at this job's result path; keeps this job's checkpoints."""
    own = steps_folder(job)
    left = [*job.out.parent.glob(f"{job.out.name}.making-*"), *own.parent.glob("*"), job.out]
    for path in left:
        if path != own and path.is_dir():
            shutil.rmtree(path)


def identity(job: Job) -> str:
    """Computes a hash that is equal for two jobs with equal results."""
    decides = job.model_dump(
        mode="json",
        exclude={
            "out": True,
            "trace": True,
            "store": True,
            "train": {**dict.fromkeys(WORK, True), "experts": {"parallel"}, "memory": {"whole_gradients"}},
            "policy": {"server", "precision", "backend", "options"},
        },
    )
    with job.samples.open("rb") as samples:
        decides["samples"] = hashlib.file_digest(samples, "sha256").hexdigest()
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]
