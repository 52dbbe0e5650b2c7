"""Supervised training: imitates successful steps by the mean of -log p over all targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from learning.algorithms.method import DataSource, Method
from learning.algorithms.objective import Objective
from learning.data.sample import read_samples

if TYPE_CHECKING:  # a stage reads the record without loading torch
    from torch import Tensor

    from learning.engines.engine import Batch, Outputs, Piece


class Imitation(Objective):
    """Computes the cross entropy of the targets."""

    def loss(self, piece: Piece, outputs: Outputs, batch: Batch) -> Tensor:
        """Computes a piece's share of the weighted mean of -log p over the step's targets."""
        return -(outputs.logprobs * outputs.weights).sum() / max(1, batch.targets)


METHOD = Method(
    source=DataSource.ACCEPTED,
    read=read_samples,
    objective=Imitation,
    alone="",
    rates={"muon": 2e-3, "adamw": 1e-5},
    first_rate=3e-3,
)
