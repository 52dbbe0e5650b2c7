"""The checkpoints of one training: saved as it goes, found again when the same job is started once more.

What decides the numbers of a training is the job's identity: parent, samples, seed, steps, rates and the like. How many
ranks run it and how they share the work is not, so a training can go on on another number of ranks. Which samples come
next is arithmetic of the step (`learning.data.sampler`), so no loader state is kept.
"""

import hashlib
import json
import shutil
from pathlib import Path

from learning.checkpoint import Checkpoints, Restored
from learning.job import Job
from learning.learner import Learner

WORK = (
    "processes", "threads", "device", "balance", "sequence_plans", "token_cap", "activation_checkpointing",
    "checkpoint_every", "keep", "keep_policies",
)  # fmt: skip
"""Settings of the training that change who does what, not what is learnt."""


def steps_folder(job: Job) -> Path:
    """Where the checkpoints of a job lie: beside its result, by its identity."""
    return job.out.with_name(f"{job.out.name}.steps") / identity(job)


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
            "train": set(WORK),
            "policy": {"server", "precision", "backend", "options"},
        },
    )
    with job.samples.open("rb") as samples:
        decides["samples"] = hashlib.file_digest(samples, "sha256").hexdigest()
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]


class Kept:
    """A learner's checkpoints; made, and every method called, by all ranks."""

    def __init__(self, job: Job, learner: Learner) -> None:
        self._every, self._steps, self._learner = job.train.checkpoint_every, job.steps, learner
        lora = job.train.lora
        self._extra = {"lora": lora.model_dump(mode="json")} if lora.rank else {}
        self._checkpoints = Checkpoints(steps_folder(job)) if self._every else None

    def restore(self) -> Restored:
        """Fills the learner from the newest whole checkpoint; damaged newer ones are set aside and named.

        Raises:
            CheckpointError: it is of another architecture.
        """
        if self._checkpoints is None:
            return Restored(None, {}, ())
        found = self._checkpoints.restore(self._learner.state())
        if found.step is not None:
            self._learner.restored(found.step)
        return found

    def after(self, step: int) -> None:
        """Saves after this many steps if it is time; the training goes on while it is written."""
        if self._every and step % self._every == 0 and step < self._steps:
            self.now(step)

    def now(self, step: int) -> None:
        """Saves after this many steps, unless the job wants no checkpoints."""
        if self._checkpoints is not None:
            self._checkpoints.save(self._learner.state(), step, {"step": step, **self._extra})

    def close(self) -> None:
        """Waits for the last save."""
        if self._checkpoints is not None:
            self._checkpoints.close()
