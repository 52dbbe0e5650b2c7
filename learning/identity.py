"""Identity of a training job, and the paths of its checkpoints; imports no `torch`.

The identity covers everything that determines a training's numbers, such as parent, samples, seed, steps and rates. It
does not cover the number of ranks and the distribution of work, so a training can resume on another number of ranks.
"""

import hashlib
import json
import shutil
from pathlib import Path

from learning.job import Job

WORK = (
    "launch", "machines", "restarts", "hung_s", "processes", "threads", "device", "balance", "sequence_plans",
    "token_cap", "replicas", "compiled", "activation_checkpointing",
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
