"""Multi-turn PPO on the small policy: a critic that is trained alone first, then with the policy, every rank a part.

Before the first step the plays are read once by the parent: its log probabilities are the old ones. What the critic
says of them before the policy moves is `learning.algorithms.valuation`'s; the policy's step is that of
`learning.engines.tiny.groups`.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from learning.algorithms.critic import Critic
from learning.algorithms.valuation import Numbers, Valuation, WithCritic
from learning.data.rollouts import Rollout
from learning.data.sample import read_screenshots
from learning.engines.learner import Draw, Taken
from learning.engines.tiny.critic import SmallBody
from learning.engines.tiny.groups import (
    COUNTED,
    FRESH,
    TOGETHER,
    check_drawn,
    fresh_gap,
    group_loss,
    means_of,
    served_logprobs,
)
from learning.engines.tiny.learner import FlatLearner
from learning.engines.tiny.optimizer import FlatOptimizer
from learning.engines.tiny.replies import Replies, ReplyLayer, reply_hidden, said_logprobs
from learning.job import Job
from models.tiny.network import TinyNet


class PpoLearner(WithCritic, FlatLearner):
    """Trains the small policy and its critic on the steps of whole plays.

    Raises:
        CheckpointError: the parent or its critic cannot be loaded.
        FlywheelError: a rollout whose tokens and log probabilities differ in number or are no numbers.
    """

    def __init__(self, job: Job, samples: Sequence[Rollout], rank: int, world: int) -> None:
        self._job, self._rank, self._world = job, rank, world
        self._net = TinyNet.load(job.parent)
        lengths = self._take(samples, job.screenshots)
        self._gradient = self._net.gradients()
        self._optimizer = FlatOptimizer(self._net, job.train, rank, world)
        self._critic = Critic(job, rank, world, partial(SmallBody, job, rank, world))
        self._valuation = Valuation(job, samples, lengths, self._critic, world)
        self._tokens = self._valuation.tokens
        self._counts = torch.zeros(COUNTED + FRESH, dtype=torch.float64)

    def renew(self, samples: Sequence[Rollout], screenshots: Path) -> None:
        """Goes on with these plays; what is compared with is from now on what policy and critic say as they are."""
        self._valuation = self._valuation.renewed(samples, self._take(samples, screenshots))
        self._tokens = self._valuation.tokens

    def step(self, batch: Sequence[Draw], rate: float) -> Taken:
        """One step of policy and critic; the loss is the mean over all reply tokens of the batch."""
        self._begin()
        chosen = [draw.sample for draw in batch]
        tokens, right = self._tokens.of(chosen), self._valuation.right(chosen)
        own = chosen[self._rank :: self._world]
        self._gradient.zero_()
        self._critic.zero()
        loss = torch.zeros(())
        for replies, members in self._laid(own):
            piece = self._loss(replies, members, tokens, right)
            piece.backward()
            loss += piece.detach()
        if self._world > 1:
            dist.all_reduce(self._gradient)
        norm = self.step_critic(rate)
        if math.isfinite(norm):
            norm = math.hypot(norm, self._optimizer.step(self._gradient, rate))
        return Taken(loss, norm, tuple(own))

    def numbers(self) -> dict[str, float]:
        """As for groups, and the valuation's."""
        if self._job.stream is None:
            self._begin()
        if self._world > 1:
            dist.all_reduce(self._counts)
        return {**means_of(self._counts, self._job.stream is not None), **self._valuation.numbers()}

    def _take(self, samples: Sequence[Rollout], screenshots: Path) -> list[int]:
        """Makes ready to lay these samples out; the length of each reply."""
        for sample in samples:
            check_drawn(sample)
        self._samples = samples
        self._layer = ReplyLayer(self._job.parent, self._net, read_screenshots(screenshots))
        return [len(self._layer.tokens(sample)) for sample in samples]

    def _begin(self) -> None:
        """Before the first step: old log probabilities, the critic's training alone, advantages and returns."""
        if not self._valuation.begun:
            self._old, hidden = self._read_by_parent()
            self._valuation.begin(partial(self._judged, hidden=hidden))

    def _loss(self, replies: Replies, members: Sequence[int], tokens: int, right: int) -> Tensor:
        """This part's share of the batch's loss."""
        at = self._tokens.index(members)
        critic, known = self._critic, self._valuation
        hidden = reply_hidden(self._net, replies)
        new = said_logprobs(self._net, hidden, replies)
        rollouts = [self._samples[member] for member in members]
        served = torch.tensor([value for rollout in rollouts for value in served_logprobs(rollout, self._layer)])
        losses, counts = group_loss(new, self._old[at], served, known.advantages[at], self._job.train.ppo)
        ages = torch.tensor([rollout.age for rollout in rollouts])[replies.rows]
        self._counts += torch.cat([counts, fresh_gap(self._old[at], served, ages)])
        values = critic.values(hidden if critic.body is None else reply_hidden(critic.body.net, replies))
        return losses.sum() / tokens + known.beside(new, values, at, tokens, right)

    def _judged(self, samples: Numbers, hidden: Tensor) -> Iterator[tuple[Tensor, Numbers]]:
        """The critic's values of this rank's share; `hidden` is what the parent's body makes of all tokens."""
        own = samples[self._rank :: self._world]
        if self._critic.body is None:
            at = self._tokens.index(own)
            yield self._critic.values(hidden[at]), at
            return
        for replies, members in self._laid(own):
            yield self._critic.values(reply_hidden(self._critic.body.net, replies)), self._tokens.index(members)

    @torch.no_grad()
    def _read_by_parent(self) -> tuple[Tensor, Tensor]:
        """The parent's log probabilities (n,), and hidden states (n, hidden) where the critic needs them.

        Of a batch of a stream it is the weights as they are, which a training goes on from, that count as the parent.
        """
        parent = TinyNet.load(self._job.parent) if self._job.stream is None else self._net
        shared = self._critic.body is None and not self._valuation.ready
        old = torch.zeros(self._tokens.count)
        seen = torch.zeros(self._tokens.count if shared else 0, parent.text["hidden_size"])
        for replies, members in self._laid(range(len(self._samples))[self._rank :: self._world]):
            at, hidden = self._tokens.index(members), reply_hidden(parent, replies)
            old[at] = said_logprobs(parent, hidden, replies)
            if shared:
                seen[at] = hidden.float()
        if self._world > 1:
            dist.all_reduce(old)
            dist.all_reduce(seen)
        return old, seen

    def _laid(self, samples: Sequence[int] | Numbers) -> Iterator[tuple[Replies, Sequence[int]]]:
        """Layouts of these samples, with the sample of each row."""
        for start in range(0, len(samples), TOGETHER):
            part = [int(sample) for sample in samples[start : start + TOGETHER]]
            for replies in self._layer.lay([self._samples[sample] for sample in part]):
                yield replies, [part[at] for at in replies.members]
