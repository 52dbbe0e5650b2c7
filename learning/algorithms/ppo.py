"""Multi-turn PPO: `grpo`'s clipped loss, its advantages by token from a critic instead of from a group.

The pass that gives the old log probabilities also keeps the hidden states of all tokens from the parent's body. While
the policy does not change, a head that shares that body is trained alone on those states; every rank keeps the tokens
that it read. A separate critic reads the same pieces with a network of its own. Then critic and policy are trained
together.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from learning.algorithms.critic import Critic
from learning.algorithms.grpo import GroupObjective
from learning.algorithms.method import DataSource, Method
from learning.algorithms.valuation import Numbers, Valuation
from learning.checkpoint import State
from learning.data.rollouts import Rollout, read_rollouts
from learning.engines.engine import Batch, Engine, Outputs, Piece
from learning.job import Job


class PpoObjective(GroupObjective):
    """Adds the clipped loss, the critic's, and the supervised one on successful trajectories.

    Raises:
        CheckpointError: the parent's critic cannot be read.
    """

    def __init__(self, job: Job, engine: Engine) -> None:
        super().__init__(job, engine)
        self.critic = Critic(job, engine)
        self.valuation = Valuation(job, engine, self.critic)
        self._read: list[tuple[Numbers, Tensor]] = []

    def documents(self, samples: Sequence[Rollout]) -> Sequence[Rollout]:
        """Returns the rollouts; raises as for groups."""
        self._read = []
        return super().documents(samples)

    def compare(self, piece: Piece, outputs: Outputs) -> None:
        """Keeps the parent body's hidden states of this rank's tokens, for a critic that shares the body."""
        if self.critic.body is None:
            wide = outputs.hidden if outputs.hidden.dtype == torch.float64 else outputs.hidden.float()
            self._read.append((outputs.tokens.cpu().numpy(), wide.cpu()))

    def begin(self, counts: Sequence[int], parent: Tensor) -> None:
        """Collects the tokens' log probabilities; the critic has not estimated them yet."""
        super().begin(counts, parent)
        self.valuation.take(self._samples, counts)

    def start(self) -> None:
        """Trains the critic alone before the first step, and computes advantages and returns."""
        if not self.valuation.begun:
            self.valuation.begin(self._judged)
            self._advantages = self.valuation.advantages.to(self._old)
            self._read = []

    def loss(self, piece: Piece, outputs: Outputs, batch: Batch) -> Tensor:
        """Computes this piece's share of the means over the step's tokens."""
        clipped, at, body = super().loss(piece, outputs, batch), outputs.tokens.cpu().numpy(), self.critic.body
        values = self.critic.values(outputs.hidden if body is None else body.hidden(piece))
        right = self.valuation.right(batch.documents)
        return clipped + self.valuation.auxiliary(outputs.logprobs, values, at, batch.targets, right)

    def zero(self) -> None:
        """Clears the critic's gradients."""
        self.critic.zero()

    def update(self, rate: float) -> float:
        """Moves the critic as far as the policy's rate is along its schedule; returns the norm of its gradient."""
        return self.critic.step(rate / self._job.learning_rate * self.valuation.rate)

    def metrics(self, counts: Tensor) -> dict[str, float]:
        """Reports the metrics of groups, and the valuation's."""
        return {**super().metrics(counts), **self.valuation.metrics()}

    def state(self) -> State:
        """Returns the critic's weights and moments, and its estimates before the policy moved."""
        return {**self.critic.state(), **self.valuation.state()}

    def restored(self, step: int) -> None:
        """Resumes; the critic was trained alone before these steps."""
        self.critic.restored(step + self.valuation.restored())

    def masters(self) -> State:
        """Returns the fp32 network of a separate critic."""
        return self.critic.masters()

    def write(self, folder: Path) -> None:
        """Writes the critic into the policy's checkpoint."""
        self.critic.write(folder)

    def _judged(self, samples: Numbers) -> Iterator[tuple[Tensor, Numbers]]:
        """Yields the critic's values of this rank's tokens of these samples; as many pieces on every rank."""
        body, tokens = self.critic.body, self.valuation.tokens
        if body is not None:
            for piece in self._engine.read([sample for sample in samples if tokens.of([sample])]):
                yield self.critic.values(body.hidden(piece)), piece.tokens.cpu().numpy()
            if not torch.is_grad_enabled():
                body.settle()
            return
        wanted = np.zeros(tokens.count, dtype=bool)
        wanted[tokens.index(samples)] = True
        for numbers, hidden in self._read:
            chosen = wanted[numbers]
            if chosen.any():
                yield self.critic.values(hidden[torch.from_numpy(chosen)]), numbers[chosen]


METHOD = Method(
    source=DataSource.TRAJECTORIES,
    read=read_rollouts,
    objective=PpoObjective,
    section="ppo",
    rates={"muon": 5e-4, "adamw": 1e-6},
    in_groups=True,
    streams=True,
)
