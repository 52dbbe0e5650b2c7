"""What makes two jobs the same training, and where the checkpoints of one lie; asked without waiting for `torch`.

What decides the numbers of a training is the job's identity: parent, samples, seed, steps, rates and the like. How many
ranks run it and how they share the work is not, so a training can go on on another number of ranks.
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
"""Settings of the training that change who does what, not what is learnt."""


def steps_folder(job: Job) -> Path:
    """Where the checkpoints of a job lie: beside its result, by its identity."""
    return job.out.with_name(f"{job.out.name}.steps") / identity(job)


def steps_place(job: Job) -> str:
    """Where the ranks keep them: there, or in the job's store, whose place is the job's own."""
    return f"{job.store}/steps" if job.store else str(steps_folder(job))


def sweep(job: Job) -> None:
    """Removes what other trainings left where this job's result will be; its own checkpoints stay."""
    own = steps_folder(job)
    left = [*job.out.parent.glob(f"{job.out.name}.making-*"), *own.parent.glob("*"), job.out]
    for path in left:
        if path != own and path.is_dir():
            shutil.rmtree(path)


def identity(job: Job) -> str:
    """Equal for two jobs that learn the same from the same samples."""
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
