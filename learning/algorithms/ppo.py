"""Trains by multi-turn PPO: `grpo`'s clipped loss with advantages by token from a critic instead of a group.

The pass that computes the old log probabilities also keeps the hidden states of all tokens from the parent's body;
every rank keeps the states of its own tokens. A head that shares the body is first trained alone on these states, while
the policy does not change. A separate critic reads the same pieces with its own network. Afterwards, critic and policy
are trained together.

`Valuation` trains the critic alone until it settles, then computes advantages and returns by token.

The critic learns the trajectories' returns while the policy does not change. The critic's values of all tokens then
determine the advantages, and the reference values of the clip, for the whole training. These values are part of the
training's checkpoints, so a resumed training does not learn them again.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from learning.algorithms import returns as estimation
from learning.algorithms.critic import Critic
from learning.algorithms.grpo import GroupObjective
from learning.algorithms.losses import positive_loss, value_loss
from learning.algorithms.method import DataSource, Method
from learning.checkpoint import State
from learning.data.files import Rollout, read_rollouts
from learning.engines.engine import Batch, Engine, Outputs, Piece
from learning.job import Job
from schemas.failure import FlywheelError

Numbers = npt.NDArray[np.int64]
Judged = Callable[[Numbers], Iterator[tuple[Tensor, Numbers]]]
"""Function that yields the critic's values, with gradient, of this rank's tokens of given samples, with the tokens'
numbers."""
_RATES = {"muon": {"shared": 1e-3, "alone": 1e-3}, "adamw": {"shared": 1e-3, "alone": 1e-5}}
"""Default learning rates of a critic: of a head alone, and of a separate network by the policy's optimiser.

The rate 1e-5 is verl's.
"""


class Valuation:
    """Holds values, advantages and returns of all trained tokens; all ranks hold the same.

    Args:
        job: the training.
        engine: runs the policy.
        critic: estimates the values.
    """

    def __init__(self, job: Job, engine: Engine, critic: Critic) -> None:
        self._job, self._config, self._engine, self._critic = job, job.train.ppo, engine, critic
        self.rate = job.train.ppo.critic_learning_rate or _RATES[engine.optimizer][job.train.ppo.critic]
        """Learning rate of the critic."""
        self._pretraining = torch.zeros(3)
        """Steps in which only the critic was trained, and explained variance before and after these steps."""
        self._settled = False
        self._lambda: float | None = None
        self._begun = self._ready = True  # there are no tokens yet to value

    def take(self, samples: Sequence[Rollout], lengths: Sequence[int]) -> None:
        """Switches to the steps of other trajectories, whose replies have these lengths in tokens.

        A critic that was already trained alone is not trained alone again.
        """
        self._samples, self._begun, self._ready = samples, False, False
        self.tokens = TokensOf(lengths)
        self.values = torch.zeros(self.tokens.count)
        """(n,) settled values V, before the policy's first update."""
        correct = torch.tensor([sample.correct for sample in samples])
        self.correct = correct.repeat_interleave(torch.tensor(list(lengths)))
        """(n,) whether each token's trajectory succeeded."""

    @property
    def begun(self) -> bool:
        """Whether the advantages are computed."""
        return self._begun

    def begin(self, judged: Judged) -> None:
        """Trains the critic alone if that was not done yet, then sets `advantages` and `returns`, both (n,)."""
        rewards = np.zeros(self.tokens.count)
        rewards[self.tokens.edges[1:] - 1] = [sample.reward for sample in self._samples]
        trajectories = self._trajectories()
        if not self._settled:
            alone = self._config.model_copy(update={"critic_lambda": 1.0})
            self.returns = torch.tensor(estimation.estimates(rewards, self.values, trajectories, alone).returns).float()
            self._pretrain(judged)
            self._settled = True
        if not self._ready:
            self.values.copy_(self._values_of(np.arange(len(self._samples)), judged))
            self._ready = True
        made = estimation.estimates(rewards, self.values, trajectories, self._config)
        found = estimation.whitened(made.advantages) if self._config.whiten else made.advantages
        self.advantages, self.returns = torch.tensor(found).float(), torch.tensor(made.returns).float()
        self._lambda = float(made.lambdas.mean())
        self._begun = True

    def auxiliary(self, logprobs: Tensor, values: Tensor, at: Numbers, tokens: int, right: int) -> Tensor:
        """Computes a part's share of the critic's loss and of the supervised loss on successes.

        Args:
            logprobs: (m,) of the part's tokens.
            values: (m,) the critic's current values.
            at: (m,) the tokens' numbers.
            tokens: number of tokens of the whole step.
            right: number of the step's tokens in trajectories that succeeded.
        """
        then, returns = (known[at].to(values) for known in (self.values, self.returns))
        loss = self._config.value_weight * value_loss(values, then, returns, self._config.value_clip or None).sum()
        loss = loss / max(1, tokens)
        if self._config.positive and right:
            mask, correct = torch.ones_like(logprobs)[:, None], self.correct[at].to(logprobs.device)
            loss = loss + self._config.positive * positive_loss(logprobs[:, None], mask, correct, right)
        return loss

    def right(self, samples: Sequence[int]) -> int:
        """Counts the tokens of these samples in trajectories that succeeded."""
        return self.tokens.of([sample for sample in samples if self._samples[sample].correct])

    def state(self) -> State:
        """Returns the critic's estimates from before the policy's first update, to be saved and loaded in place.

        With a stream there is a checkpoint after each batch, and the next batch gets new values.
        """
        values = {"ppo.values": self.values} if self._job.stream is None else {}
        return {"ppo.pretraining": self._pretraining, **values}

    def restored(self) -> int:
        """Resumes after `state` was loaded; returns the number of steps in which only the critic was trained."""
        self._settled, self._ready = True, self._job.stream is None
        return int(self._pretraining[0])

    def metrics(self) -> dict[str, float]:
        """Reports explained variance of held-out trajectories, steps in which only the critic was trained, and the mean
        lambda."""
        steps, before, after = self._pretraining.tolist()
        lambdas = {} if self._lambda is None else {"policy_lambda": self._lambda}
        return {
            "value_steps": steps,
            "explained_variance_before": before,
            "explained_variance": after,
            "critic_kept": float(self._critic.kept),
            **lambdas,
        }

    def _pretrain(self, judged: Judged) -> None:
        """Trains the critic alone; stores the measurements in `_pretraining`."""
        out = estimation.held_out(self._samples)
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
            return estimation.explained_variance(self._values_of(kept_out, judged), returns)

        found = estimation.pretrain(
            step, measure, self._critic.snapshot, lambda kept: self._critic.restore(kept, made), per_pass, self._config
        )
        self._pretraining.copy_(torch.tensor([found.steps, found.before, found.after]))

    def _fit(self, batch: Numbers, judged: Judged) -> None:
        """Makes one step that trains only the critic."""
        tokens = self.tokens.of(batch)
        self._critic.zero()
        for values, at in judged(batch):
            missed = value_loss(values, values.detach(), self.returns[at].to(values))
            (missed.sum() / tokens).backward()
        norm = self._critic.step(self.rate)
        if not math.isfinite(norm):
            raise FlywheelError(
                f"The critic's gradient has the norm {norm} before the policy moved, of the batch of samples "
                f"{', '.join(map(str, batch))}.",
                "Nothing was written; lower train.ppo.critic_learning_rate or look at the samples.",
            )

    @torch.no_grad()
    def _values_of(self, samples: Numbers, judged: Judged) -> Tensor:
        """Computes V of all tokens of these samples, in order."""
        whole = torch.zeros(self.tokens.count)
        for values, at in judged(samples):
            whole[at] = values.to(whole)
        return self._engine.sum(whole).cpu()[self.tokens.index(samples)]

    def _trajectories(self) -> list[Numbers]:
        """Lists the tokens of each trajectory, over its steps in order."""
        steps: dict[str, list[int]] = {}
        for at, sample in enumerate(self._samples):
            steps.setdefault(sample.trajectory_id, []).append(at)
        return [self.tokens.index(sorted(each, key=lambda at: self._samples[at].step)) for each in steps.values()]


class TokensOf:
    """Positions of each sample's tokens when all are concatenated."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        """(samples + 1,) the first token of each sample, and the end."""

    @property
    def count(self) -> int:
        """Number of all tokens."""
        return int(self.edges[-1])

    def of(self, samples: Sequence[int] | Numbers) -> int:
        """Counts the tokens of these samples."""
        return int(sum(self.edges[sample + 1] - self.edges[sample] for sample in samples))

    def index(self, samples: Sequence[int] | Numbers) -> Numbers:
        """Lists the numbers of the tokens of these samples, one sample after the other."""
        found = [np.arange(self.edges[sample], self.edges[sample + 1]) for sample in samples]
        return np.concatenate([np.zeros(0, dtype=np.int64), *found])


class PpoObjective(GroupObjective):
    """Adds up the clipped loss, the critic's loss, and the supervised loss on successful trajectories.

    Raises:
        CheckpointError: the parent's critic cannot be read.
    """

    def __init__(self, job: Job, engine: Engine) -> None:
        super().__init__(job, engine)
        self.critic = Critic(job, engine)
        self.valuation = Valuation(job, engine, self.critic)
        self._read: list[tuple[Numbers, Tensor]] = []

    def documents(self, samples: Sequence[Rollout]) -> Sequence[Rollout]:
        """Returns the rollouts; raises as `GroupObjective.documents` does."""
        self._read = []
        return super().documents(samples)

    def compare(self, piece: Piece, outputs: Outputs) -> None:
        """Keeps the parent body's hidden states of this rank's tokens, for a critic that shares the body."""
        if self.critic.body is None:
            wide = outputs.hidden if outputs.hidden.dtype == torch.float64 else outputs.hidden.float()
            self._read.append((outputs.tokens.cpu().numpy(), wide.cpu()))

    def begin(self, counts: Sequence[int], parent: Tensor) -> None:
        """Collects the tokens' log probabilities; the critic's estimates follow later."""
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
        """Updates the critic, whose rate follows the policy's schedule; returns the norm of the critic's gradient."""
        return self.critic.step(rate / self._job.learning_rate * self.valuation.rate)

    def metrics(self, counts: Tensor) -> dict[str, float]:
        """Reports the metrics of groups, and those of the valuation."""
        return {**super().metrics(counts), **self.valuation.metrics()}

    def state(self) -> State:
        """Returns the critic's weights and moments, and the critic's estimates from before the policy's first
        update."""
        return {**self.critic.state(), **self.valuation.state()}

    def restored(self, step: int) -> None:
        """Resumes at this step; the critic was trained alone before the first step."""
        self.critic.restored(step + self.valuation.restored())

    def masters(self) -> State:
        """Returns the fp32 network of a separate critic."""
        return self.critic.masters()

    def write(self, folder: Path) -> None:
        """Writes the critic into the policy's checkpoint."""
        self.critic.write(folder)

    def _judged(self, samples: Numbers) -> Iterator[tuple[Tensor, Numbers]]:
        """Yields the critic's values of this rank's tokens of these samples; the number of pieces is equal on every
        rank."""
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
    alone="",
    rates={"muon": 5e-4, "adamw": 1e-6},
    in_groups=True,
    streams=True,
    networks=lambda train: 2 if train.ppo.critic == "alone" else 1,
)
