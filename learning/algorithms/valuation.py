"""What a critic makes of plays: trained alone until it has settled, then values, advantages and returns by token.

The critic learns the plays' returns while the policy stands still; what it then says of every token fixes advantages
and the values that clipping goes by, for the whole training. Those values are part of the training's checkpoints, so a
training that goes on does not learn them again.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from learning.algorithms import ppo
from learning.algorithms.critic import Critic
from learning.algorithms.policy_losses import positive_loss, value_loss
from learning.checkpoint import State
from learning.data.rollouts import Rollout
from learning.engines.learner import Learner
from learning.job import Job
from schemas.failure import FlywheelError

Numbers = npt.NDArray[np.int64]
Judged = Callable[[Numbers], Iterator[tuple[Tensor, Numbers]]]
"""The critic's values, with gradient, of all tokens of these samples: what this rank computes of them, piece by piece,
each with the numbers of its tokens."""


class Valuation:
    """Values, advantages and returns of all tokens of a training's plays; all ranks hold the same.

    Args:
        job: the training.
        samples: the steps of whole plays.
        lengths: how many tokens the reply of each has.
        critic: who judges.
        world: how many ranks there are.
    """

    def __init__(
        self, job: Job, samples: Sequence[Rollout], lengths: Sequence[int], critic: Critic[Any], world: int
    ) -> None:
        self._job, self._config, self._samples, self._critic, self._world = job, job.train.ppo, samples, critic, world
        self.tokens = TokensOf(lengths)
        self.values = torch.zeros(self.tokens.count)
        """(n,) V before the policy moved, once it has settled."""
        self._told = torch.zeros(3)
        self._settled = self._ready = False
        self._estimates: ppo.Estimates | None = None
        correct = torch.tensor([sample.correct for sample in samples])
        self.correct = correct.repeat_interleave(torch.tensor(list(lengths)))
        """(n,) whether the token's play succeeded."""

    def renewed(self, samples: Sequence[Rollout], lengths: Sequence[int]) -> "Valuation":
        """Of other plays, which come while the training goes on: the critic is not trained alone again."""
        made = Valuation(self._job, samples, lengths, self._critic, self._world)
        made._told, made._settled = self._told, self._settled
        return made

    @property
    def ready(self) -> bool:
        """Whether the values are known, now or before the training was interrupted."""
        return self._ready

    @property
    def begun(self) -> bool:
        """Whether there are advantages."""
        return self._estimates is not None

    def begin(self, judged: Judged) -> None:
        """Trains the critic alone, unless that was done; then `advantages` and `returns` are there, both (n,)."""
        rewards = np.zeros(self.tokens.count)
        rewards[self.tokens.edges[1:] - 1] = [sample.reward for sample in self._samples]
        plays = self._plays()
        if not self._settled:
            alone = self._config.model_copy(update={"critic_lambda": 1.0})
            self.returns = torch.tensor(ppo.estimates(rewards, self.values, plays, alone).returns).float()
            self._pretrain(judged)
            self._settled = True
        if not self._ready:
            self.values.copy_(self._values_of(np.arange(len(self._samples)), judged))
            self._ready = True
        self._estimates = ppo.estimates(rewards, self.values, plays, self._config)
        found = self._estimates.advantages
        self.advantages = torch.tensor(ppo.whitened(found) if self._config.whiten else found).float()
        self.returns = torch.tensor(self._estimates.returns).float()

    def beside(self, logprobs: Tensor, values: Tensor, at: Numbers, tokens: int, right: int) -> Tensor:
        """What a part of a step adds to its clipped loss: the critic's loss, and the supervised one on what succeeded.

        Args:
            logprobs: (m,) of the part's tokens.
            values: (m,) the critic's now.
            at: (m,) the tokens' numbers.
            tokens: how many the whole step has.
            right: how many of them are of plays that succeeded.
        """
        then, returns = (known[at].to(values) for known in (self.values, self.returns))
        loss = self._config.value_weight * value_loss(values, then, returns, self._config.value_clip or None).sum()
        loss = loss / max(1, tokens)
        if self._config.positive and right:
            said = torch.ones_like(logprobs)[:, None]
            correct = self.correct[at].to(logprobs.device)
            loss = loss + self._config.positive * positive_loss(logprobs[:, None], said, correct, right)
        return loss

    def right(self, samples: Sequence[int]) -> int:
        """How many tokens these samples have in plays that succeeded."""
        return self.tokens.of([sample for sample in samples if self._samples[sample].correct])

    def state(self) -> State:
        """What the critic said before the policy moved, to be saved and loaded in place.

        With a stream there is a checkpoint after each batch, and the next batch has values of its own.
        """
        values = {"ppo.values": self.values} if self._job.stream is None else {}
        return {"ppo.pretraining": self._told, **values}

    def restored(self) -> int:
        """Goes on from what was loaded into `state`; returns the steps that the critic made alone."""
        self._settled, self._ready = True, self._job.stream is None
        return int(self._told[0])

    def numbers(self) -> dict[str, float]:
        """Explained variance of plays left out, steps of the critic alone, the mean lambda of the plays read."""
        steps, before, after = self._told.tolist()
        lambdas = {} if self._estimates is None else {"policy_lambda": float(self._estimates.lambdas.mean())}
        return {
            "value_steps": steps,
            "explained_variance_before": before,
            "explained_variance": after,
            "critic_kept": float(self._critic.kept),
            **lambdas,
        }

    def _pretrain(self, judged: Judged) -> None:
        """Trains the critic alone; leaves what was measured in `_told`."""
        out = ppo.held_out(self._samples)
        kept_out, fitted = np.flatnonzero(out), np.flatnonzero(~out if not out.all() else out)
        size = min(self._config.batch, len(fitted))
        per_pass = math.ceil(len(fitted) / size)
        made = 0
        if self._config.value_steps and not self._critic.kept:
            self._critic.expect(float(self.returns[self.tokens.index(fitted)].mean()))

        def step(number: int) -> None:
            nonlocal made
            turn, part = divmod(number, per_pass)
            order = np.random.default_rng((self._job.seed, turn)).permutation(fitted)
            self._fit(order[part * size : (part + 1) * size], judged)
            made = number + 1

        def measure() -> float:
            returns = self.returns[self.tokens.index(kept_out)]
            return ppo.explained_variance(self._values_of(kept_out, judged), returns)

        found = ppo.pretrain(
            step, measure, self._critic.keep, lambda kept: self._critic.take_back(kept, made), per_pass, self._config
        )
        self._told.copy_(torch.tensor([found.steps, found.before, found.after]))

    def _fit(self, batch: Numbers, judged: Judged) -> None:
        """One step of the critic alone."""
        tokens = self.tokens.of(batch)
        self._critic.zero()
        for values, at in judged(batch):
            missed = value_loss(values, values.detach(), self.returns[at].to(values))
            (missed.sum() / tokens).backward()
        norm = self._critic.step(self._config.critic_learning_rate)
        if not math.isfinite(norm):
            raise FlywheelError(
                f"The critic's gradient has the norm {norm} before the policy moved, of the batch of samples "
                f"{', '.join(map(str, batch))}.",
                "Nothing was written; lower train.ppo.critic_learning_rate or look at the samples.",
            )

    @torch.no_grad()
    def _values_of(self, samples: Numbers, judged: Judged) -> Tensor:
        """V of all tokens of these samples, in order."""
        whole = torch.zeros(self.tokens.count)
        for values, at in judged(samples):
            whole[at] = values.to(whole)
        if self._world > 1:
            dist.all_reduce(whole)
        return whole[self.tokens.index(samples)]

    def _plays(self) -> list[Numbers]:
        """The tokens of each play, over its steps in order."""
        steps: dict[str, list[int]] = {}
        for at, sample in enumerate(self._samples):
            steps.setdefault(sample.trajectory_id, []).append(at)
        return [self.tokens.index(sorted(played, key=lambda at: self._samples[at].step)) for played in steps.values()]


class WithCritic(Learner):
    """What a learner with a critic keeps beside the policy, in the training's checkpoints and in the one it writes."""

    _job: Job
    _critic: Critic[Any]
    _valuation: Valuation

    def step_critic(self, rate: float) -> float:
        """Moves the critic as far as the policy's rate is along its schedule; returns the norm of its gradient."""
        return self._critic.step(rate / self._job.learning_rate * self._job.train.ppo.critic_learning_rate)

    def state(self) -> State:
        """The policy's and the critic's weights and moments, and what the critic said before the policy moved."""
        return {**super().state(), **self._critic.state(), **self._valuation.state()}

    def restored(self, step: int) -> None:
        """Goes on with both; the critic was trained alone before these steps."""
        super().restored(step)
        self._critic.restored(step + self._valuation.restored())

    def write(self, folder: Path) -> None:
        """Writes the policy's weights, and the critic beside them."""
        super().write(folder)
        self._critic.write(folder)


class TokensOf:
    """Where the tokens of each sample lie when all are laid end to end."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        """(samples + 1,) the first token of each, and the end."""

    @property
    def count(self) -> int:
        """All tokens."""
        return int(self.edges[-1])

    def of(self, samples: Sequence[int] | Numbers) -> int:
        """How many tokens these samples have."""
        return int(sum(self.edges[sample + 1] - self.edges[sample] for sample in samples))

    def index(self, samples: Sequence[int] | Numbers) -> Numbers:
        """Numbers of the tokens of these samples, one after the other."""
        found = [np.arange(self.edges[sample], self.edges[sample + 1]) for sample in samples]
        return np.concatenate([np.zeros(0, dtype=np.int64), *found])
