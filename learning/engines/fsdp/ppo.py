"""Multi-turn PPO on any `transformers` directory: a critic on the policy's own hidden states, or a model of its own.

Shared: what the parent's body makes of all tokens is kept in the pass that gives the old log probabilities, and while
the policy stands still the head alone is trained, on those. Every rank keeps the tokens that it read, so nothing is
sent but the head's gradient. Alone: a second model, sharded as the policy, reads the same work. Then critic and policy
are trained together, whatever the plan.
"""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from learning.algorithms.critic import Critic
from learning.algorithms.objectives import ValuedObjective
from learning.algorithms.valuation import Numbers, Valuation, WithCritic
from learning.data.rollouts import Rollout
from learning.engines.fsdp.critic import ShardedBody
from learning.engines.fsdp.learner import Prepared, ShardedLearner
from learning.engines.fsdp.phases import Work
from learning.engines.learner import Taken
from learning.job import Job


class ShardedPpoLearner(WithCritic, ShardedLearner):
    """Trains a directory's model and its critic on the steps of whole plays.

    Args, raises: as `ShardedLearner`; also `CheckpointError` for a critic that cannot be read.
    """

    _objective: ValuedObjective

    def __init__(
        self, job: Job, samples: Sequence[Rollout], rank: int, world: int, dtype: torch.dtype = torch.float32
    ) -> None:
        self._critic = Critic(job, rank, world, partial(ShardedBody, job, rank, world, dtype))
        self._kept: list[tuple[Numbers, Tensor]] = []
        super().__init__(job, samples, rank, world, dtype)
        self._valuation = Valuation(job, samples, self._targets, self._critic, world)
        self._right = 0

    def renew(self, samples: Sequence[Rollout], screenshots: Path) -> None:
        """Goes on with these plays; what is compared with is from now on what policy and critic say as they are."""
        self._kept = []
        super().renew(samples, screenshots)
        self._valuation = self._valuation.renewed(samples, self._targets)

    def step(self, batch: "Future[Prepared]", rate: float) -> Taken:
        """One step of policy and critic; the loss is the mean over all reply tokens of the batch."""
        self._begin()
        self._critic.zero()
        taken = super().step(batch, rate)
        if not math.isfinite(taken.norm):
            return taken
        return Taken(taken.loss, math.hypot(taken.norm, self.step_critic(rate)), taken.samples)

    def gradient(self, ready: Prepared) -> Tensor:
        """Gathers the gradients of the policy and, rank by rank, of the critic."""
        self._begin()
        self._right = self._valuation.right(ready.chosen)
        return super().gradient(ready)

    def loss(self, logprobs: Tensor, hidden: Tensor, work: Work, targets: int) -> Tensor:
        """The clipped loss, the value loss beside it, and the supervised one on plays that succeeded."""
        clipped, at = super().loss(logprobs, hidden, work, targets), work.tokens.cpu().numpy()
        if self._critic.body is not None:
            hidden = self._critic.body.hidden(work)
        return clipped + self._valuation.beside(logprobs, self._critic.values(hidden), at, targets, self._right)

    def numbers(self) -> dict[str, float]:
        """As for groups, and the valuation's."""
        if self._job.stream is None:
            self._begin()
        return {**super().numbers(), **self._valuation.numbers()}

    def _begin(self) -> None:
        """Before the first step: the critic's training alone, advantages and returns."""
        if not self._valuation.begun:
            self._valuation.begin(self._judged)
            self._objective.judged(self._valuation.advantages)
            self._kept = []

    def _seen_by_parent(self, work: Work, hidden: Tensor) -> None:
        if self._critic.body is not None:
            return
        kept = hidden.cpu() if hidden.dtype == torch.float64 else hidden.float().cpu()
        self._kept.append((work.tokens.cpu().numpy(), kept))

    def _judged(self, samples: Numbers) -> Iterator[tuple[Tensor, Numbers]]:
        """The critic's values of the tokens of these samples that this rank reads."""
        if self._critic.body is not None:
            yield from self._read(self._critic.body, samples)
            return
        wanted = np.zeros(self._valuation.tokens.count, dtype=bool)
        wanted[self._valuation.tokens.index(samples)] = True
        for numbers, hidden in self._kept:
            chosen = wanted[numbers]
            if chosen.any():
                yield self._critic.values(hidden[torch.from_numpy(chosen)]), numbers[chosen]

    def _read(self, body: ShardedBody, samples: Numbers) -> Iterator[tuple[Tensor, Numbers]]:
        """The values of a critic that stands alone, micro-batch by micro-batch; every rank yields as many pieces."""
        size = self._job.train.batch
        for start in range(0, len(samples), size):
            chosen = [int(sample) for sample in samples[start : start + size] if self._measures[sample] is not None]
            for work in self._agreed(self._thread.submit(self.prepared, chosen)).works:
                here = work.to(self._device)
                yield self._critic.values(body.hidden(here)), here.tokens.cpu().numpy()
        if not torch.is_grad_enabled():
            body.reshard()
