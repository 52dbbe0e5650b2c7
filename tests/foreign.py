"""A training method from outside (`train.method=tests.foreign:METHOD`): imitation that is held near the parent."""

import torch
from torch import Tensor

from learning.algorithms.method import DataSource, Method
from learning.algorithms.objective import Objective
from learning.data.sample import read_samples
from learning.engines.engine import Batch, Outputs, Piece
from learning.job import Job
from schemas.config.training import StepSection


class NearOptions(StepSection):
    """`[train.options]`."""

    pull: float = 0.1


class Near(Objective):
    """-log p + pull (log p - log p of the parent)^2, mean over the step's targets."""

    needs_parent = True

    def __init__(self, job: Job, engine: object) -> None:
        super().__init__(job, engine)  # type: ignore[arg-type]
        self._pull = NearOptions.model_validate(job.train.options).pull
        self.counts = torch.zeros(2, dtype=torch.float64)

    def begin(self, counts: list[int], parent: Tensor) -> None:  # type: ignore[override]
        """Keeps the parent's log probabilities."""
        assert sum(counts) == len(parent)
        self._parent = parent

    def loss(self, piece: Piece, outputs: Outputs, batch: Batch) -> Tensor:
        """This piece's share."""
        gap = outputs.logprobs - self._parent[outputs.tokens]
        self.counts += torch.tensor([len(gap), float(gap.detach().abs().sum())])
        return (self._pull * gap**2 - outputs.logprobs).sum() / max(1, batch.targets)

    def metrics(self, counts: Tensor) -> dict[str, float]:
        """How far the targets moved."""
        return {"tokens": float(counts[0]), "moved": float(counts[1] / max(1.0, float(counts[0])))}


METHOD = Method(
    source=DataSource.ACCEPTED,
    read=read_samples,
    objective=Near,
    options=NearOptions,
    rates={"muon": 2e-3, "adamw": 1e-3},
)
