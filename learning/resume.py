"""The checkpoints of one training: saved as it goes, found again when the same job is started once more.

Which samples come next is arithmetic of the step (`learning.data.sampler`), so no loader state is kept.
"""

from learning.checkpoint import Checkpoints, Restored
from learning.identity import steps_place
from learning.job import Job
from learning.learner import Learner


class TrainerCheckpoints:
    """A learner's checkpoints; made, and every method called, by all ranks."""

    def __init__(self, job: Job, learner: Learner) -> None:
        self._every, self._steps, self._learner = job.train.checkpoint_every, job.steps, learner
        lora = job.train.lora
        self._extra = {"lora": lora.model_dump(mode="json")} if lora.rank else {}
        self._checkpoints = Checkpoints(steps_place(job)) if self._every else None

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

    def due(self, step: int) -> bool:
        """Whether it is time to save after this many steps."""
        return bool(self._every) and step % self._every == 0 and step < self._steps

    def now(self, step: int) -> None:
        """Saves after this many steps, unless the job wants no checkpoints; the training goes on while it is
        written."""
        if self._checkpoints is not None:
            self._checkpoints.save(self._learner.state(), step, {"step": step, **self._extra})

    def close(self) -> None:
        """Waits for the last save."""
        if self._checkpoints is not None:
            self._checkpoints.close()
