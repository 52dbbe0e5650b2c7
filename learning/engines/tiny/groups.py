"""Group methods on the small policy: the clipped loss over the tokens of each batch, every rank a part of it.

The old log probabilities are the parent's (with a stream: those of the weights before each batch), computed by the
trainer itself; against those the tokens were drawn with they give the mismatch of training and serving (and of
staleness, where another policy played), which truncated weights correct. A token whose drawing nobody recorded
weighs 1.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from learning.algorithms.policy_losses import clipped_loss, truncated_weights
from learning.data.rollouts import Rollout
from learning.data.sample import read_screenshots
from learning.engines.learner import Draw, Taken
from learning.engines.tiny.learner import FlatLearner
from learning.engines.tiny.optimizer import FlatOptimizer
from learning.engines.tiny.replies import Replies, ReplyLayer, reply_logprobs
from learning.job import Job
from models.tiny.network import TinyNet
from schemas.config.training import GroupConfig, PpoConfig
from schemas.failure import FlywheelError

TOGETHER = 16
"""Rollouts of one forward pass: more only takes memory."""
COUNTED = 5
"""Sums that `group_loss` keeps."""
FRESH = 2
"""Sums that `fresh_gap` keeps."""


class GroupLearner(FlatLearner):
    """Trains the small policy on rollouts with advantages.

    Raises:
        CheckpointError: the parent cannot be loaded.
        FlywheelError: a rollout whose tokens and log probabilities differ in number or are no numbers.
    """

    def __init__(self, job: Job, samples: Sequence[Rollout], rank: int, world: int) -> None:
        self._streamed = job.stream is not None
        self._checkpoint, self._group, self._rank, self._world = job.parent, job.train.group, rank, world
        self._net, self._parent = TinyNet.load(job.parent), TinyNet.load(job.parent)
        self.renew(samples, job.screenshots)
        self._gradient = self._net.gradients()
        self._optimizer = FlatOptimizer(self._net, job.train, rank, world)
        self._counts = torch.zeros(COUNTED + FRESH, dtype=torch.float64)

    def renew(self, samples: Sequence[Rollout], screenshots: Path) -> None:
        """Goes on with these rollouts; the old log probabilities are from now on those of the weights as they are."""
        for sample in samples:
            check_drawn(sample)
        self._samples = samples
        self._layer = ReplyLayer(self._checkpoint, self._net, read_screenshots(screenshots))
        with torch.no_grad():
            self._parent.flat.copy_(self._net.flat)

    def step(self, batch: Sequence[Draw], rate: float) -> Taken:
        """One step; the loss is the mean over all reply tokens of the batch."""
        tokens = sum(len(self._layer.tokens(self._samples[draw.sample])) for draw in batch)
        drawn = tuple(draw.sample for draw in batch[self._rank :: self._world])
        own = [self._samples[sample] for sample in drawn]
        self._gradient.zero_()
        loss = torch.zeros(())
        for start in range(0, len(own), TOGETHER):
            part = own[start : start + TOGETHER]
            for replies in self._layer.lay(part):
                piece = self._loss(replies, [part[at] for at in replies.members]) / tokens
                piece.backward()
                loss += piece.detach()
        if self._world > 1:
            dist.all_reduce(self._gradient)
        return Taken(loss, self._optimizer.step(self._gradient, rate), drawn)

    def numbers(self) -> dict[str, float]:
        """Tokens trained on, mean |log p of training - of serving|, shares of clipped tokens, mean |log ratio|.

        With a stream also the mismatch over the tokens of age 0 alone: there training and serving have the same
        weights, so what is left is how the two compute.
        """
        if self._world > 1:
            dist.all_reduce(self._counts)
        return means_of(self._counts, self._streamed)

    def _loss(self, replies: Replies, rollouts: Sequence[Rollout]) -> Tensor:
        new = reply_logprobs(self._net, replies)
        with torch.no_grad():
            old = reply_logprobs(self._parent, replies)
        advantages = torch.tensor([rollout.advantage for rollout in rollouts])[replies.rows]
        served = torch.tensor([value for rollout in rollouts for value in served_logprobs(rollout, self._layer)])
        losses, counts = group_loss(new, old, served, advantages, self._group)
        ages = torch.tensor([rollout.age for rollout in rollouts])[replies.rows]
        self._counts += torch.cat([counts, fresh_gap(old, served, ages)])
        return losses.sum()


def means_of(counts: Tensor, streamed: bool = False) -> dict[str, float]:
    """Means over tokens, of what `group_loss` (with a stream also `fresh_gap`) counted, summed over the ranks."""
    tokens, drawn, mismatch, clipped, moved = counts[:COUNTED].tolist()
    means = {
        "tokens": tokens,
        "mismatch": mismatch / max(1.0, drawn),
        "clipped": clipped / max(1.0, tokens),
        "moved": moved / max(1.0, tokens),
    }
    if streamed:
        fresh, gap = counts[COUNTED:].tolist()
        means["mismatch_fresh"] = gap / max(1.0, fresh)
    return means


def fresh_gap(old: Tensor, served: Tensor, ages: Tensor) -> Tensor:
    """How many tokens of age 0 have a drawing, and their sum of |old - served|; all arguments are (n,)."""
    gap = (old - served)[served.isfinite() & (ages == 0)].abs()
    return torch.tensor([len(gap), float(gap.sum())], dtype=torch.float64)


def group_loss(
    new: Tensor, old: Tensor, served: Tensor, advantages: Tensor, group: GroupConfig | PpoConfig
) -> tuple[Tensor, Tensor]:
    """The clipped loss of each token, weighted by the truncated importance weight, and what was counted on the way.

    Args:
        new: log probabilities now, (n,).
        old: the trainer's before its first step, (n,).
        served: those of the drawing, NaN where nobody knows them, (n,).
        advantages: (n,).
        group: clips and cap.

    Returns:
        Losses (n,), and sums over the tokens: all, those with a drawing, |old - served|, clipped, |new - old|.
    """
    drawn = served.isfinite()
    weights = torch.where(drawn, truncated_weights(old, torch.where(drawn, served, old), group.most_weight), 1.0)
    losses = weights * clipped_loss(new, old, advantages, group.clip_low, group.clip_high)
    moved = (new - old).detach()
    ratio = moved.exp()
    clipped = ((advantages > 0) & (ratio > 1 + group.clip_high)) | ((advantages < 0) & (ratio < 1 - group.clip_low))
    gap = (old - served)[drawn].abs()
    counts = [len(new), int(drawn.sum()), float(gap.sum()), int(clipped.sum()), float(moved.abs().sum())]
    return losses, torch.tensor(counts, dtype=torch.float64)


def served_logprobs(rollout: Rollout, layer: ReplyLayer) -> tuple[float, ...]:
    """The log probabilities that a reply was drawn with; NaN for each token if nobody knows them."""
    return rollout.logprobs or (math.nan,) * len(layer.tokens(rollout))


def check_drawn(rollout: Rollout) -> None:
    """Raises `FlywheelError` for a rollout whose log probabilities are not those of its tokens."""
    where = f"step {rollout.step} of trajectory {rollout.trajectory_id}"
    if len(rollout.token_ids) != len(rollout.logprobs):
        raise FlywheelError(
            f"{where}: {len(rollout.token_ids)} tokens and {len(rollout.logprobs)} log probabilities.",
            "The lake's row is broken; delete that trajectory.",
        )
    if not all(math.isfinite(value) for value in (*rollout.logprobs, rollout.advantage, rollout.reward)):
        raise FlywheelError(
            f"{where}: a log probability, advantage or reward that is no number.", "Delete that trajectory."
        )
