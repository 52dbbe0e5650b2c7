"""Agent DPO on the small policy: the parent is the frozen reference, the loss covers thoughts and actions only."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from learning.algorithms.policy_losses import dpo_loss
from learning.data.preferences import Preference
from learning.data.rollouts import Rollout
from learning.data.sample import read_screenshots
from learning.engines.learner import Draw, Taken
from learning.engines.tiny.learner import FlatLearner
from learning.engines.tiny.optimizer import FlatOptimizer
from learning.engines.tiny.replies import ReplyLayer, reply_logprobs
from learning.job import Job
from models.tiny.network import TinyNet

TOGETHER = 8
"""Pairs of one forward pass: more only takes memory."""


class PairLearner(FlatLearner):
    """Trains the small policy on preferences.

    Raises:
        CheckpointError: the parent cannot be loaded.
    """

    def __init__(self, job: Job, samples: Sequence[Preference], rank: int, world: int) -> None:
        self._samples, self._beta, self._rank, self._world = samples, job.train.preference.beta, rank, world
        self._net, self._reference = TinyNet.load(job.parent), TinyNet.load(job.parent)
        self._layer = ReplyLayer(job.parent, self._net, read_screenshots(job.screenshots))
        self._gradient = self._net.gradients()
        self._optimizer = FlatOptimizer(self._net, job.train, rank, world)
        self._counts = torch.zeros(3, dtype=torch.float64)

    def step(self, batch: Sequence[Draw], rate: float) -> Taken:
        """One step; the loss is the mean over the pairs of the batch."""
        drawn = tuple(draw.sample for draw in batch[self._rank :: self._world])
        self._gradient.zero_()
        loss = torch.zeros(())
        for start in range(0, len(drawn), TOGETHER):
            part = self._loss([self._samples[sample] for sample in drawn[start : start + TOGETHER]]).sum() / len(batch)
            part.backward()
            loss += part.detach()
        if self._world > 1:
            dist.all_reduce(self._gradient)
        return Taken(loss, self._optimizer.step(self._gradient, rate), drawn)

    def numbers(self) -> dict[str, float]:
        """Mean margin of the preferred reply against the reference, in nats, and how often it is above 0."""
        if self._world > 1:
            dist.all_reduce(self._counts)
        pairs, right, margin = self._counts.tolist()
        return {"margin": margin / max(1.0, pairs), "preferred": right / max(1.0, pairs)}

    def _loss(self, pairs: Sequence[Preference]) -> Tensor:
        """The loss of each pair."""
        replies = [self._reply(pair, text) for pair in pairs for text in (pair.chosen, pair.rejected)]
        new, old = self._sums(self._net, replies), self._frozen(replies)
        losses = dpo_loss(new[0::2], new[1::2], old[0::2], old[1::2], self._beta)
        margins = ((new - old)[0::2] - (new - old)[1::2]).detach()
        self._counts += torch.tensor([len(pairs), int((margins > 0).sum()), float(margins.sum())], dtype=torch.float64)
        return losses

    @torch.no_grad()
    def _frozen(self, replies: Sequence[Rollout]) -> Tensor:
        return self._sums(self._reference, replies)

    def _sums(self, net: TinyNet, replies: Sequence[Rollout]) -> Tensor:
        """Summed log probability of each reply, in their order."""
        sums = torch.zeros(len(replies))
        for laid in self._layer.lay(replies):
            members = torch.tensor(laid.members)[laid.rows]
            sums = sums.index_add(0, members, reply_logprobs(net, laid))
        return sums

    def _reply(self, pair: Preference, text: str) -> Rollout:
        """One side of a pair; without an end token, which is neither thought nor action."""
        rollout = Rollout(pair.pair_id, 0, pair.task_id, pair.screenshots, pair.prompt, text)
        return replace(rollout, token_ids=self._layer.tokens(rollout)[:-1])
