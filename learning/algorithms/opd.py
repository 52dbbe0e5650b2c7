"""Trains by on-policy distillation: a teacher scores the tokens that the policy itself sampled.

The advantage of a token is log p of the teacher - log p of the policy, so no reward is needed, and every token has an
advantage of its own. The stage `train` asks the teacher before the trainer starts (`tasks.train.scores`).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from learning.algorithms.grpo import check_drawn
from learning.algorithms.losses import distilled_loss
from learning.algorithms.method import DataSource, Method, method_of
from learning.algorithms.objective import Objective
from learning.data.files import ScoredReply, read_scored
from learning.engines.engine import Batch, Engine, Outputs, Piece
from learning.job import Job
from schemas.config.training import DistillConfig
from schemas.failure import FlywheelError


class DistillObjective(Objective):
    """Computes the mean of `distilled_loss` over all reply tokens of the step."""

    def __init__(self, job: Job, engine: Engine) -> None:
        super().__init__(job, engine)
        settings = method_of(job.train).settings(job.train)
        assert isinstance(settings, DistillConfig)
        self._settings = settings
        self.counts = torch.zeros(4, dtype=torch.float64)

    def documents(self, samples: Sequence[ScoredReply]) -> Sequence[ScoredReply]:
        """Checks and returns the replies.

        Raises:
            FlywheelError: a reply has other numbers of tokens, log probabilities and scores, or one that is no number.
        """
        self._samples = list(samples)
        for sample in self._samples:
            check_drawn(sample)
            if len(sample.teacher) != len(sample.token_ids) or not all(map(math.isfinite, sample.teacher)):
                raise FlywheelError(
                    f"step {sample.step} of trajectory {sample.trajectory_id}: {len(sample.teacher)} scores of the "
                    f"teacher for {len(sample.token_ids)} tokens, or one that is no number.",
                    "Delete its row of table `teacher_scores`, and train again.",
                )
        return self._samples

    def begin(self, counts: Sequence[int], parent: Tensor) -> None:
        """Collects behaviour and teacher's log probabilities of all tokens."""
        pairs = list(zip(self._samples, counts, strict=True))
        known = [
            [value for sample, count in pairs for value in sample.logprobs[:count]],
            [value for sample, count in pairs for value in sample.teacher[:count]],
        ]
        self._served, self._teacher = torch.tensor(known, dtype=self._engine.dtype, device=self._engine.device)

    def loss(self, piece: Piece, outputs: Outputs, batch: Batch) -> Tensor:
        """Computes this piece's share of the step's mean."""
        new, served, teacher = outputs.logprobs, self._served[outputs.tokens], self._teacher[outputs.tokens]
        losses, kept = distilled_loss(new, served, teacher, self._settings.max_fall, self._settings.ratio_penalty)
        gap, moved = (new - teacher).detach(), (new - served).detach().abs()
        counted = (torch.ones_like(gap), gap, moved, ~kept)
        self.counts = self.counts.to(losses.device) + torch.stack([each.double().sum() for each in counted])
        return losses.sum() / max(1, batch.targets)

    def metrics(self, counts: Tensor) -> dict[str, float]:
        """Computes means over the tokens that were trained on.

        `teacher_gap` is log p of the policy - of the teacher, in nats: an estimate of KL(policy || teacher) while the
        policy is close to the one that sampled. `moved` is the mean |log ratio| to the policy that sampled, and
        `clipped` the share of tokens that fell too far.
        """
        tokens, gap, moved, dropped = counts.tolist()
        each = max(1.0, tokens)
        return {"tokens": tokens, "teacher_gap": gap / each, "moved": moved / each, "clipped": dropped / each}

    def measures(self, counts: Tensor) -> dict[str, float]:
        """Computes the same means for some steps; `mismatch` is their `moved`."""
        if not counts[0]:
            return {}
        found = self.metrics(counts)
        return {"teacher_gap": found["teacher_gap"], "clipped": found["clipped"], "mismatch": found["moved"]}


METHOD = Method(
    source=DataSource.REPLIES,
    read=read_scored,
    objective=DistillObjective,
    section="opd",
    rates={"adamw": 1e-6},
)
