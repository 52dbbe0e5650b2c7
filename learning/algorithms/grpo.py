"""Trains by GRPO: advantages from the rewards of a group, and the clipped loss over all reply tokens of a step.

The trainer computes the old log probabilities, with the weights before the first step (with a stream, before each
batch). Their difference from the behaviour log probabilities is the mismatch of training and serving, and also of
staleness if another policy acted. Truncated importance weights correct this mismatch. A token without a behaviour log
probability has the weight 1.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from learning.algorithms.losses import clipped_loss, kl_loss, soft_gate_loss, truncated_weights
from learning.algorithms.method import DataSource, Method, method_of
from learning.algorithms.objective import Objective
from learning.data.files import Rollout, read_rollouts
from learning.engines.engine import Batch, Engine, Outputs, Piece
from learning.job import Job
from learning.reports import send
from schemas.config.training import ClippedConfig, GroupConfig
from schemas.failure import FlywheelError

COUNTED = 6 + 3
"""Number of sums: those of `token_losses`, and those of advantages, their squares and ages."""
WARNED = 0.1
"""Mismatch of actor and trainer, in nats, above which training warns. A served model with the same weights reaches
0.02."""
HALVED = 0.5
"""Weight of a gradient below which a token with a soft gate counts as clipped."""
FRESH = 2
"""Number of sums that `fresh_gap` keeps."""


class GroupObjective(Objective):
    """Computes the clipped loss with truncated importance weights, as the mean over all reply tokens of the step.

    With `train.group.ratio=sequence`, it is the mean over the step's replies. With `soft`, the loss is SAPO's: a soft
    gate instead of the clip, and the mean over the step's replies of the mean over a reply's tokens.
    """

    needs_parent = True

    def __init__(self, job: Job, engine: Engine) -> None:
        super().__init__(job, engine)
        self.counts = torch.zeros(COUNTED + FRESH, dtype=torch.float64)
        settings = method_of(job.train).settings(job.train)
        assert isinstance(settings, ClippedConfig)
        self._clips = settings
        self.needs_sums = isinstance(settings, GroupConfig) and settings.ratio == "sequence"
        self._soft = isinstance(settings, GroupConfig) and settings.ratio == "soft"
        self._widest, self._warned = 0.0, False

    def documents(self, samples: Sequence[Rollout]) -> Sequence[Rollout]:
        """Checks and returns the rollouts.

        Raises:
            FlywheelError: a rollout has log probabilities that are no numbers, or whose count differs from its tokens.
        """
        self._samples = list(samples)
        for sample in self._samples:
            check_drawn(sample)
        return self._samples

    def begin(self, counts: Sequence[int], parent: Tensor) -> None:
        """Collects old and behaviour log probabilities, advantages and ages of all tokens.

        Raises:
            FlywheelError: the behaviour log probabilities differ from those of these weights by more than the limit.
        """
        served, advantages, ages = [], [], []
        for rollout, count in zip(self._samples, counts, strict=True):
            served += rollout.logprobs[:count] or [math.nan] * count
            advantages += [rollout.advantage] * count
            ages += [rollout.age] * count
        self._old = parent
        self._ages = torch.tensor(ages, device=parent.device)
        self._served, self._advantages = (
            torch.tensor(values, dtype=parent.dtype, device=parent.device) for values in (served, advantages)
        )
        self._counts = counts
        if self._soft:
            lengths = torch.tensor(counts, device=parent.device)
            self._shares = lengths.to(parent.dtype).reciprocal().repeat_interleave(lengths)
        if self.needs_sums:
            rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)).to(parent.device)
            self._old_sums = parent.new_zeros(len(counts), dtype=torch.float64).index_add(0, rows, parent.double())
            self._lengths = torch.tensor(counts, device=parent.device).clamp(min=1)
            self._there = torch.tensor(counts, device=parent.device) > 0
            self._gains = torch.tensor([one.advantage for one in self._samples]).to(self._old_sums)
        tokens, gap = fresh_gap(self._old, self._served, self._ages).tolist()
        self._widest = max(self._widest, gap / max(1.0, tokens))
        self._require_match()

    def _require_match(self) -> None:
        """Warns once if actor and trainer disagree on the tokens' log probabilities, and raises above the limit."""
        most = self._clips.most_mismatch
        key = f"train.{method_of(self._job.train).section}.most_mismatch"
        gap = f"the tokens' log probabilities differ by {self._widest:.3g} nats on average between actor and trainer"
        why = "the actor has other weights, prompts or pictures, or log probabilities before temperature"
        if most is not None and self._widest > most:
            raise FlywheelError(f"`{key}` is {most:g}, and {gap}.", f"{why[0].upper()}{why[1:]}.")
        if self._widest > WARNED and not self._warned and self._engine.rank == 0:
            self._warned = True
            send(warning=f"{gap[0].upper()}{gap[1:]} (0.02 is usual): {why}. `{key}` is the limit.")

    def weigh(self, sums: Tensor, documents: Tensor) -> Tensor:
        """Computes the mean loss of the step's clipped replies (GSPO, Eq. 5), and its derivative by each reply's sum.

        A reply without tokens is not counted.
        """
        asked, clips = sums.detach().requires_grad_(), self._clips
        old, lengths, gains = (known[documents] for known in (self._old_sums, self._lengths, self._gains))
        replies = clipped_loss(asked / lengths, old / lengths, gains, clips.clip_low, clips.clip_high, clips.dual_clip)
        loss = replies[self._there[documents]].sum() / self._there[documents].sum().clamp(min=1)
        (self._slopes,) = torch.autograd.grad(loss, asked)
        return loss.detach()

    def loss(self, piece: Piece, outputs: Outputs, batch: Batch) -> Tensor:
        """Computes this piece's share of the step's mean; with `sequence`, a term with the loss's gradient."""
        targets = max(1, batch.targets)
        old, served, advantages, ages = (
            known[outputs.tokens] for known in (self._old, self._served, self._advantages, self._ages)
        )
        slopes = self._slopes[outputs.rows] * targets if self.needs_sums else None
        losses, counts = token_losses(outputs.logprobs, old, served, advantages, self._clips, slopes)
        if self._soft:
            replies = sum(self._counts[document] > 0 for document in batch.documents)
            losses = losses * self._shares[outputs.tokens] * (targets / max(1, replies))
        gains = advantages.double()
        known = torch.stack([gains.sum(), gains.square().sum(), ages.double().sum()]).to(counts)
        self.counts = self.counts.to(counts) + torch.cat([counts, known, fresh_gap(old, served, ages)])
        return losses.sum() / targets

    def metrics(self, counts: Tensor) -> dict[str, float]:
        """Reports tokens trained on, mismatch, shares of clipped tokens, and mean |log ratio|.

        The mismatch is the mean |log p of training - of serving|. It is reported over all tokens, and as the largest
        mean of an update over its tokens of age 0. With a stream, it is also reported over all tokens of age 0: there,
        training and serving have the same weights and differ only in arithmetic.
        """
        tokens, drawn, mismatch, clipped, moved, *_, fresh, gap = counts.tolist()
        means = {
            "tokens": tokens,
            "mismatch": mismatch / max(1.0, drawn),
            "mismatch_most": self._widest,
            "clipped": clipped / max(1.0, tokens),
            "moved": moved / max(1.0, tokens),
        }
        return means if self._job.stream is None else {**means, "mismatch_fresh": gap / max(1.0, fresh)}

    def measures(self, counts: Tensor) -> dict[str, float]:
        """Computes means over the steps' tokens.

        The means are the clipped share, |log p of training - of serving|, the spread of advantages, and the estimate k3
        of KL(policy || old policy). The old policy is that before this training or, with a stream, before this batch.
        With a stream, they also have the mean age of the tokens, in updates.
        """
        tokens, drawn, mismatch, clipped, _, divergence, gain, square, age, *_ = counts.tolist()
        if not tokens:
            return {}
        spread = math.sqrt(max(0.0, square / tokens - (gain / tokens) ** 2))
        found = {"kl": divergence / tokens, "clipped": clipped / tokens, "advantage_std": spread}
        found |= {"mismatch": mismatch / drawn} if drawn else {}
        return found if self._job.stream is None else {**found, "staleness": age / tokens}


def token_losses(
    new: Tensor,
    old: Tensor,
    served: Tensor,
    advantages: Tensor,
    clips: ClippedConfig,
    slopes: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes each token's loss, weighted by the truncated importance weight, and sums for the metrics.

    Args:
        new: current log probabilities, (n,).
        old: the trainer's log probabilities before its first step, (n,).
        served: behaviour log probabilities, NaN if unknown, (n,).
        advantages: (n,).
        clips: the clips, the cap of importance weights, and the weight of the divergence from `old`.
        slopes: if replies are clipped instead of tokens, the derivatives of their loss by each token's log probability,
            (n,). The losses then have the gradient of that loss, but not its value.

    Returns:
        Losses (n,), and sums over the tokens: their number, the number with a behaviour log probability, |old -
        served|, clipped tokens, |new - old|, and the divergence from `old` (`kl_loss`).
    """
    drawn = served.isfinite()
    weights = torch.where(drawn, truncated_weights(old, torch.where(drawn, served, old), clips.most_weight), 1.0)
    moved = (new - old).detach()
    if isinstance(clips, GroupConfig) and clips.ratio == "soft":
        losses, kept = soft_gate_loss(new, old, advantages, clips.gate_positive, clips.gate_negative)
        clipped = (kept < HALVED) & (advantages != 0)
    elif slopes is None:
        losses = clipped_loss(new, old, advantages, clips.clip_low, clips.clip_high, clips.dual_clip)
        ratio, dual = moved.exp(), math.inf if clips.dual_clip is None else clips.dual_clip
        above = torch.where(advantages > 0, 1 + clips.clip_high, dual)
        below = torch.where(advantages < 0, 1 - clips.clip_low, 0.0)
        clipped = ((ratio > above) | (ratio < below)) & (advantages != 0)
    else:
        losses, clipped = slopes * new, (slopes == 0) & (advantages != 0)
    losses, divergence = weights * losses, kl_loss(new if clips.kl else new.detach(), old)
    if clips.kl:
        losses = losses + clips.kl * divergence
    gap = torch.where(drawn, old - served, 0.0).abs()
    every = torch.ones_like(moved)
    return losses, _sums(every, drawn, gap, clipped, moved.abs(), divergence.detach())


def fresh_gap(old: Tensor, served: Tensor, ages: Tensor) -> Tensor:
    """Counts the tokens of age 0 with a behaviour log probability, and sums their |old - served|; arguments are
    (n,)."""
    there = served.isfinite() & (ages == 0)
    return _sums(there, torch.where(there, old - served, 0.0).abs())


def _sums(*values: Tensor) -> Tensor:
    """Makes sums on their values' devices, so that nothing waits for a device."""
    return torch.stack([value.double().sum() for value in values])


def check_drawn(rollout: Rollout) -> None:
    """Raises `FlywheelError` if a rollout's log probabilities do not belong to its tokens."""
    where = f"step {rollout.step} of trajectory {rollout.trajectory_id}"
    if len(rollout.token_ids) != len(rollout.logprobs):
        raise FlywheelError(
            f"{where}: {len(rollout.token_ids)} tokens and {len(rollout.logprobs)} log probabilities.",
            "The lake's row is broken; delete that trajectory.",
        )
    if not all(math.isfinite(value) for value in (*rollout.logprobs, rollout.advantage, rollout.reward)):
        raise FlywheelError(
            f"{where}: a log probability, advantage or reward is not a finite number.", "Delete that trajectory."
        )


METHOD = Method(
    source=DataSource.GROUPS,
    read=read_rollouts,
    objective=GroupObjective,
    section="group",
    alone="",
    rates={"muon": 5e-4, "adamw": 1e-6},
    in_groups=True,
    streams=True,
)
