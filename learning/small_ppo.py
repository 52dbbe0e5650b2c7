"""Multi-turn PPO on the small policy: a critic that is trained alone first, then with the policy, every rank a part.

Before the first step the plays are read once by the parent: its log probabilities are the old ones. The critic learns
the plays' returns while the policy stands still, until it has settled; what it then says of every token fixes
advantages and the values that clipping goes by, for the whole training. Those values are part of the training's
checkpoints, so a training that goes on does not learn them again. The policy's step is that of `learning.small_groups`.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from learning import ppo
from learning.checkpoint import State
from learning.critic import Critic
from learning.job import Job
from learning.learner import Draw, Taken
from learning.optimizer import FlatOptimizer
from learning.policy_losses import positive_loss, value_loss
from learning.replies import Replies, ReplyLayer, reply_hidden, said_logprobs
from learning.rollouts import Rollout
from learning.sample import read_screenshots
from learning.small import FlatLearner
from learning.small_groups import COUNTED, TOGETHER, check_drawn, group_loss, means_of, served_logprobs
from models.fast import TinyNet
from schemas.failure import FlywheelError


class PpoLearner(FlatLearner):
    """Trains the small policy and its critic on the steps of whole plays.

    Raises:
        CheckpointError: the parent or its critic cannot be loaded.
        FlywheelError: a rollout whose tokens and log probabilities differ in number or are no numbers.
    """

    def __init__(self, job: Job, samples: Sequence[Rollout], rank: int, world: int) -> None:
        for sample in samples:
            check_drawn(sample)
        self._job, self._samples, self._config, self._rank, self._world = job, samples, job.train.ppo, rank, world
        self._net = TinyNet.load(job.parent)
        self._layer = ReplyLayer(job.parent, self._net, read_screenshots(job.screenshots))
        self._gradient = self._net.gradients()
        self._optimizer = FlatOptimizer(self._net, job.train, rank, world)
        self._critic = Critic(job, rank, world)
        self._tokens = TokensOf([len(self._layer.tokens(sample)) for sample in samples])
        self._values = torch.zeros(self._tokens.count)
        self._told = torch.zeros(3)
        self._ready, self._begun = False, False
        self._counts = torch.zeros(COUNTED, dtype=torch.float64)

    def step(self, batch: Sequence[Draw], rate: float) -> Taken:
        """One step of policy and critic; the loss is the mean over all reply tokens of the batch."""
        if not self._begun:
            self._begin()
        chosen = [draw.sample for draw in batch]
        tokens = self._tokens.of(chosen)
        right = self._tokens.of([sample for sample in chosen if self._samples[sample].correct])
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
        norm = self._critic.step(rate / self._job.learning_rate * self._config.critic_learning_rate)
        if math.isfinite(norm):
            norm = math.hypot(norm, self._optimizer.step(self._gradient, rate))
        return Taken(loss, norm, tuple(own))

    def state(self) -> State:
        """The policy's and the critic's weights and moments, and what the critic said before the policy moved."""
        fixed = {"ppo.values": self._values, "ppo.pretraining": self._told}
        return {**super().state(), **self._critic.state(), **fixed}

    def restored(self, step: int) -> None:
        """Hands the weights to the networks; the critic was trained alone before these steps."""
        super().restored(step)
        self._critic.restored(step + int(self._told[0]))
        self._ready = True

    def write(self, folder: Path) -> None:
        """Writes the weights, and the critic beside them."""
        super().write(folder)
        if self._rank == 0:
            self._critic.write(folder)

    def numbers(self) -> dict[str, float]:
        """As for groups; explained variance of plays left out, steps of the critic alone, the policy's mean lambda."""
        if not self._begun:
            self._begin()
        steps, before, after = self._told.tolist()
        told = {"value_steps": steps, "explained_variance_before": before, "explained_variance": after}
        return {
            **means_of(self._counts, self._world),
            **told,
            "critic_kept": float(self._critic.kept),
            "policy_lambda": float(self._estimates.lambdas.mean()),
        }

    def _begin(self) -> None:
        """Old log probabilities, the critic's training alone (unless it was done), advantages and returns."""
        self._old, hidden = self._read_by_parent()
        ends = self._tokens.edges[1:] - 1
        rewards = np.zeros(self._tokens.count)
        rewards[ends] = [sample.reward for sample in self._samples]
        plays = self._plays()
        if not self._ready:
            alone = self._config.model_copy(update={"critic_lambda": 1.0})
            self._returns = torch.tensor(ppo.estimates(rewards, self._values, plays, alone).returns).float()
            self._pretrain(hidden)
            self._values.copy_(self._values_of(range(len(self._samples)), hidden))
            self._ready = True
        self._estimates = ppo.estimates(rewards, self._values, plays, self._config)
        found = self._estimates.advantages
        self._advantages = torch.tensor(ppo.whitened(found) if self._config.whiten else found).float()
        self._returns = torch.tensor(self._estimates.returns).float()
        self._begun = True

    def _loss(self, replies: Replies, members: Sequence[int], tokens: int, right: int) -> Tensor:
        """This part's share of the batch's loss."""
        at = self._tokens.index(members)
        config, critic = self._config, self._critic
        hidden = reply_hidden(self._net, replies)
        new = said_logprobs(self._net, hidden, replies)
        rollouts = [self._samples[member] for member in members]
        served = torch.tensor([value for rollout in rollouts for value in served_logprobs(rollout, self._layer)])
        losses, counts = group_loss(new, self._old[at], served, self._advantages[at], config)
        self._counts += counts
        values = critic.values(hidden if critic.net is None else reply_hidden(critic.net, replies))
        missed = value_loss(values, self._values[at], self._returns[at], config.value_clip or None)
        loss = (losses + config.value_weight * missed).sum() / tokens
        if config.positive and right:
            correct = torch.tensor([rollout.correct for rollout in rollouts])
            correct = correct.repeat_interleave(torch.tensor([self._tokens.of([member]) for member in members]))
            loss = loss + config.positive * positive_loss(new[:, None], torch.ones(len(new), 1), correct, right)
        return loss

    def _pretrain(self, hidden: Tensor) -> None:
        """Trains the critic alone; leaves what was measured in `_told`."""
        out = ppo.held_out(self._samples)
        kept_out, fitted = np.flatnonzero(out), np.flatnonzero(~out if not out.all() else out)
        size = min(self._config.batch, len(fitted))
        per_pass = math.ceil(len(fitted) / size)
        rate, made = self._config.critic_learning_rate, 0
        if self._config.value_steps and not self._critic.kept:
            self._critic.expect(float(self._returns[self._tokens.index(fitted)].mean()))

        def step(number: int) -> None:
            nonlocal made
            turn, part = divmod(number, per_pass)
            order = np.random.default_rng((self._job.seed, turn)).permutation(fitted)
            self._fit(order[part * size : (part + 1) * size].tolist(), hidden, rate)
            made = number + 1

        def measure() -> float:
            returns = self._returns[self._tokens.index(kept_out)]
            return ppo.explained_variance(self._values_of(kept_out, hidden), returns)

        found = ppo.pretrain(
            step, measure, self._critic.keep, lambda kept: self._critic.take_back(kept, made), per_pass, self._config
        )
        self._told.copy_(torch.tensor([found.steps, found.before, found.after]))

    def _fit(self, batch: Sequence[int], hidden: Tensor, rate: float) -> None:
        """One step of the critic alone."""
        tokens = self._tokens.of(batch)
        self._critic.zero()
        for values, members in self._judged(batch[self._rank :: self._world], hidden):
            missed = value_loss(values, values.detach(), self._returns[self._tokens.index(members)])
            (missed.sum() / tokens).backward()
        norm = self._critic.step(rate)
        if not math.isfinite(norm):
            raise FlywheelError(
                f"The critic's gradient has the norm {norm} before the policy moved, of the batch of samples "
                f"{', '.join(map(str, batch))}.",
                "Nothing was written; lower train.ppo.critic_learning_rate or look at the samples.",
            )

    @torch.no_grad()
    def _values_of(self, samples: Sequence[int] | np.ndarray, hidden: Tensor) -> Tensor:
        """V of all tokens of these samples, in order; each rank computes its share."""
        whole = torch.zeros(self._tokens.count)
        for values, members in self._judged(samples[self._rank :: self._world], hidden):
            whole[self._tokens.index(members)] = values
        if self._world > 1:
            dist.all_reduce(whole)
        return whole[self._tokens.index(samples)]

    def _judged(self, samples: Sequence[int] | np.ndarray, hidden: Tensor) -> Iterator[tuple[Tensor, Sequence[int]]]:
        """The critic's values, piece by piece; `hidden` is what the parent's body makes of all tokens."""
        if self._critic.net is None:
            if len(samples):
                yield self._critic.values(hidden[self._tokens.index(samples)]), list(samples)
            return
        for replies, members in self._laid(samples):
            yield self._critic.values(reply_hidden(self._critic.net, replies)), members

    @torch.no_grad()
    def _read_by_parent(self) -> tuple[Tensor, Tensor]:
        """The parent's log probabilities (n,), and hidden states (n, hidden) where the critic needs them."""
        parent = TinyNet.load(self._job.parent)
        shared = self._critic.net is None and not self._ready
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

    def _laid(self, samples: Sequence[int] | np.ndarray) -> Iterator[tuple[Replies, Sequence[int]]]:
        """Layouts of these samples, with the sample of each row."""
        for start in range(0, len(samples), TOGETHER):
            part = [int(sample) for sample in samples[start : start + TOGETHER]]
            for replies in self._layer.lay([self._samples[sample] for sample in part]):
                yield replies, [part[at] for at in replies.members]

    def _plays(self) -> list[np.ndarray]:
        """The tokens of each play, over its steps in order."""
        steps: dict[str, list[int]] = {}
        for at, sample in enumerate(self._samples):
            steps.setdefault(sample.trajectory_id, []).append(at)
        return [self._tokens.index(sorted(played, key=lambda at: self._samples[at].step)) for played in steps.values()]


class TokensOf:
    """Where the tokens of each sample lie when all are laid end to end."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        """(samples + 1,) the first token of each, and the end."""

    @property
    def count(self) -> int:
        """All tokens."""
        return int(self.edges[-1])

    def of(self, samples: Sequence[int]) -> int:
        """How many tokens these samples have."""
        return int(sum(self.edges[sample + 1] - self.edges[sample] for sample in samples))

    def index(self, samples: Sequence[int] | np.ndarray) -> np.ndarray:
        """Indices of the tokens of these samples, one after the other."""
        return np.concatenate([np.arange(self.edges[sample], self.edges[sample + 1]) for sample in samples])
