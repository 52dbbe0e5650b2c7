"""Trains by Agent DPO: of two replies to a context, the successful reply is preferred; the parent is the reference."""

from collections.abc import Sequence

import torch
from torch import Tensor

from learning.algorithms.losses import dpo_loss
from learning.algorithms.method import DataSource, Method, method_of
from learning.algorithms.objective import Objective
from learning.data.files import Rollout
from learning.data.sample import Preference, read_preferences
from learning.engines.engine import Batch, Engine, Outputs, Piece
from learning.job import Job
from schemas.config.training import PreferenceConfig


class PairObjective(Objective):
    """Computes the mean of `dpo_loss` over the pairs of the step."""

    each = 2
    needs_parent = True
    needs_sums = True

    def __init__(self, job: Job, engine: Engine) -> None:
        super().__init__(job, engine)
        settings = method_of(job.train).settings(job.train)
        assert isinstance(settings, PreferenceConfig)
        self._beta = settings.beta
        self.counts = torch.zeros(3, dtype=torch.float64)

    def documents(self, samples: Sequence[Preference]) -> Sequence[Rollout]:
        """Lists both replies of each pair."""
        return [side for pair in samples for side in sides_of(pair)]

    def begin(self, counts: Sequence[int], parent: Tensor) -> None:
        """Sums the reference's log probabilities by reply."""
        rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)).to(parent.device)
        self._reference = parent.new_zeros(len(counts), dtype=torch.float64).index_add(0, rows, parent.double())

    def weigh(self, sums: Tensor, documents: Tensor) -> Tensor:
        """Computes the loss of the step's pairs, and its derivative by each sum."""
        asked, old = sums.detach().requires_grad_(), self._reference[documents]
        loss = dpo_loss(asked[0::2], asked[1::2], old[0::2], old[1::2], self._beta).mean()
        (self._slopes,) = torch.autograd.grad(loss, asked)
        margins = (sums - old)[0::2] - (sums - old)[1::2]
        counted = (torch.ones_like(margins), margins > 0, margins)
        self.counts = self.counts.to(sums) + torch.stack([each.double().sum() for each in counted])
        return loss.detach()

    def loss(self, piece: Piece, outputs: Outputs, batch: Batch) -> Tensor:
        """Computes a term with the gradient of the loss, but not its value."""
        return (self._slopes[outputs.rows] * outputs.logprobs).sum()

    def metrics(self, counts: Tensor) -> dict[str, float]:
        """Computes the mean margin of preferred replies against the reference, in nats, and how often it is above 0.

        Every rank counts all pairs, so only means are meaningful.
        """
        pairs, right, margin = counts.tolist()
        return {"margin": margin / max(1.0, pairs), "preferred": right / max(1.0, pairs)}

    def measures(self, counts: Tensor) -> dict[str, float]:
        """Computes the same metrics for some steps."""
        return self.metrics(counts) if counts[0] else {}


def sides_of(pair: Preference) -> list[Rollout]:
    """Lists the preferred and the rejected reply, without an end token, which is neither thought nor action."""
    return [
        Rollout(
            pair.pair_id,
            len(pair.past_replies),
            pair.task_id,
            pair.screenshots,
            pair.instruction,
            pair.past_replies,
            text,
            weight=pair.weight,
            ended=False,
            past_errors=pair.past_errors,
        )
        for text in (pair.chosen, pair.rejected)
    ]


METHOD = Method(
    source=DataSource.PAIRS,
    read=read_preferences,
    objective=PairObjective,
    section="preference",
    alone="dpo compares two replies to one context, and no other reply follows the rejected one",
    rates={"muon": 2e-4, "adamw": 5e-7},
    in_groups=True,
)
