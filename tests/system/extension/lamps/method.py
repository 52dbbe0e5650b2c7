"""A training method: imitation that weights likely targets less (focal loss, arXiv 1708.02002)."""

from torch import Tensor

from learning.algorithms.method import DataSource, Method
from learning.algorithms.objective import Objective
from learning.data.sample import read_samples
from learning.engines.engine import Batch, Engine, Outputs, Piece
from learning.job import Job
from schemas.config.section import Share
from schemas.config.training import StepSection


class FocalOptions(StepSection):
    """`[train.options]`."""

    focus: Share = 0.5
    """0: plain imitation; 1: a target's loss is multiplied by 1 - p."""


class Focal(Objective):
    """-(1 - p)^focus log p, mean over the step's targets."""

    def __init__(self, job: Job, engine: Engine) -> None:
        super().__init__(job, engine)
        self._focus = FocalOptions.model_validate(job.train.options).focus

    def loss(self, piece: Piece, outputs: Outputs, batch: Batch) -> Tensor:
        """Return the loss of this piece."""
        unlikely = (1 - outputs.logprobs.detach().exp()).clamp(min=0) ** self._focus
        return -(unlikely * outputs.logprobs * outputs.weights).sum() / max(1, batch.targets)


METHOD = Method(
    source=DataSource.ACCEPTED,
    read=read_samples,
    objective=Focal,
    options=FocalOptions,
    rates={"muon": 2e-3, "adamw": 1e-5},
)
