"""What a step of the sharded learner minimises: a function of the log probabilities of its target tokens.

The parent's log probabilities are computed by the model itself in one pass over all documents before the first step,
and kept as one number per token: there is no second copy of the weights, whatever their size. A preference depends on
the sums over two replies, which a plan may place anywhere; its gradient is taken by the chain rule, from the sums of a
pass without gradient: sum over the tokens of dL/d(sum) log p.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from learning.algorithms.policy_losses import dpo_loss
from learning.data.preferences import Preference
from learning.data.rollouts import Rollout
from learning.data.sample import Screenshots
from learning.engines.fsdp.chats import Chats, Encoder
from learning.engines.fsdp.phases import Work
from learning.engines.fsdp.reply_chats import ReplyChats
from learning.engines.tiny.groups import COUNTED, FRESH, check_drawn, fresh_gap, group_loss, means_of
from learning.job import Job
from schemas.config.training import GroupConfig, PpoConfig
from schemas.sample import TrainSample


class Objective(ABC):
    """One method.

    Args:
        job: the training.
        samples: what it trains on.
    """

    each = 1
    """Documents per sample."""
    needs_parent = False
    """Whether the parent's log probabilities are asked for."""
    needs_sums = False
    """Whether the summed log probability of each document is asked for before every step's gradient."""
    streams = False
    """Whether other samples may come while it trains."""

    def __init__(self, job: Job, samples: Sequence[Any]) -> None:
        self._job = job
        self.counts = torch.zeros(0, dtype=torch.float64)
        """Sums of what was measured on this rank."""
        self.documents: Sequence[Any] = samples
        """What is encoded; those of sample i are the `each` from i * `each` on."""

    @abstractmethod
    def encoder(self) -> Encoder[Any]:
        """What turns documents into tokens."""

    def begin(self, counts: Sequence[int], parent: Tensor) -> None:  # noqa: B027  (imitation has no parent)
        """Told once: how many targets every document has, and the parent's log probability of each, in their order."""

    def weigh(self, sums: Tensor, documents: Tensor) -> Tensor:
        """Told before a step's gradient if `needs_sums`; returns the step's loss.

        Args:
            sums: (n,) summed log probability of each document of the step.
            documents: (n,) their numbers.
        """
        raise NotImplementedError

    @abstractmethod
    def loss(self, logprobs: Tensor, work: Work, targets: int) -> Tensor:
        """What is added to a step's loss by these tokens; of a method that was told the sums only the gradient counts.

        Args:
            logprobs: (m,) of the work's targets.
            work: which they are.
            targets: how many the whole step has.
        """

    def numbers(self, counts: Tensor) -> dict[str, float]:
        """What the sums of `counts` over all ranks say."""
        return {}

    def _screenshots(self) -> Screenshots:
        return Screenshots(self._job.screenshots)


class Imitation(Objective):
    """Supervised: the mean of -log p over all target tokens."""

    documents: Sequence[TrainSample]

    def encoder(self) -> Chats:
        """Thoughts and actions to be imitated."""
        return Chats(self._job.parent, self._job.policy, self._screenshots(), self._job.seed)

    def loss(self, logprobs: Tensor, work: Work, targets: int) -> Tensor:
        """Cross entropy."""
        return -logprobs.sum() / max(1, targets)


class GroupObjective(Objective):
    """Rollouts with advantages: the clipped loss, mean over all reply tokens of the step.

    Raises:
        FlywheelError: a rollout whose tokens and log probabilities differ in number or are no numbers.
    """

    needs_parent = True
    streams = True
    documents: Sequence[Rollout]

    def __init__(self, job: Job, samples: Sequence[Rollout]) -> None:
        super().__init__(job, samples)
        for sample in samples:
            check_drawn(sample)
        self.counts = torch.zeros(COUNTED + FRESH, dtype=torch.float64)
        self._clipped: GroupConfig | PpoConfig = job.train.group

    def encoder(self) -> ReplyChats:
        """Replies as they were drawn."""
        return ReplyChats(self._job.parent, self._job.policy, self._screenshots(), self._job.seed)

    def begin(self, counts: Sequence[int], parent: Tensor) -> None:
        """Lays out what is known of each token."""
        served, advantages, ages = [], [], []
        for rollout, count in zip(self.documents, counts, strict=True):
            served += rollout.logprobs[:count] or [float("nan")] * count
            advantages += [rollout.advantage] * count
            ages += [rollout.age] * count
        self._old = parent
        self._ages = torch.tensor(ages, device=parent.device)
        self._served, self._advantages = (
            torch.tensor(values, dtype=parent.dtype, device=parent.device) for values in (served, advantages)
        )

    def loss(self, logprobs: Tensor, work: Work, targets: int) -> Tensor:
        """PPO's clipped loss with truncated importance weights."""
        old, served, advantages = (part[work.tokens] for part in (self._old, self._served, self._advantages))
        losses, counts = group_loss(logprobs, old, served, advantages, self._clipped)
        self.counts += torch.cat([counts, fresh_gap(old, served, self._ages[work.tokens])])
        return losses.sum() / max(1, targets)

    def numbers(self, counts: Tensor) -> dict[str, float]:
        """As the small policy's group learner."""
        return means_of(counts, self._job.stream is not None)


class ValuedObjective(GroupObjective):
    """The same with advantages by token, which a critic gives."""

    def __init__(self, job: Job, samples: Sequence[Rollout]) -> None:
        super().__init__(job, samples)
        self._clipped = job.train.ppo

    def judged(self, advantages: Tensor) -> None:
        """Told once, before the first step: the advantage of every token of all documents."""
        self._advantages = advantages.to(self._old)


class PairObjective(Objective):
    """Agent DPO: the parent is the frozen reference, the loss is the mean over the pairs of the step."""

    each = 2
    needs_parent = True
    needs_sums = True
    documents: Sequence[Rollout]

    def __init__(self, job: Job, samples: Sequence[Preference]) -> None:
        sides = [_side(pair, text) for pair in samples for text in (pair.chosen, pair.rejected)]
        super().__init__(job, sides)
        self.counts = torch.zeros(3, dtype=torch.float64)

    def encoder(self) -> ReplyChats:
        """Replies without an end token, which is neither thought nor action."""
        return ReplyChats(self._job.parent, self._job.policy, self._screenshots(), self._job.seed, end=False)

    def begin(self, counts: Sequence[int], parent: Tensor) -> None:
        """Sums the reference's log probabilities by reply."""
        rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)).to(parent.device)
        self._reference = parent.new_zeros(len(counts)).index_add(0, rows, parent)

    def weigh(self, sums: Tensor, documents: Tensor) -> Tensor:
        """The loss of the step's pairs, and how it changes with each sum."""
        asked, old = sums.detach().requires_grad_(), self._reference[documents]
        beta = self._job.train.preference.beta
        loss = dpo_loss(asked[0::2], asked[1::2], old[0::2], old[1::2], beta).mean()
        (self._slopes,) = torch.autograd.grad(loss, asked)
        margins = (sums - old)[0::2] - (sums - old)[1::2]
        told = [len(margins), int((margins > 0).sum()), float(margins.sum())]
        self.counts += torch.tensor(told, dtype=torch.float64)
        return loss.detach()

    def loss(self, logprobs: Tensor, work: Work, targets: int) -> Tensor:
        """A term whose gradient is the loss's; its value is not."""
        return (self._slopes[work.rows] * logprobs).sum()

    def numbers(self, counts: Tensor) -> dict[str, float]:
        """As the small policy's pair learner; every rank counts all pairs, so only shares are told."""
        pairs, right, margin = counts.tolist()
        return {"margin": margin / max(1.0, pairs), "preferred": right / max(1.0, pairs)}


OBJECTIVES: dict[str, Callable[[Job, Sequence[Any]], Objective]] = {
    "sft": Imitation,
    "ct": Imitation,
    "rft": Imitation,
    "grpo": GroupObjective,
    "ppo": ValuedObjective,
    "dpo": PairObjective,
}
"""By `train.method`."""


def _side(pair: Preference, text: str) -> Rollout:
    return Rollout(
        pair.pair_id,
        len(pair.said),
        pair.task_id,
        pair.screenshots,
        pair.prompt,
        text,
        weight=pair.weight,
        instruction=pair.instruction,
        said=pair.said,
    )
