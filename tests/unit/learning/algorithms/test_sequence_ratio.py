"""`train.group.ratio` `sequence` (GSPO): the gradient against the paper's formula, however replies are cut."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from learning.algorithms.grpo import GroupObjective
from learning.data.files import Rollout
from learning.engines.engine import Batch, Outputs
from learning.job import Job
from schemas.config.policy import PolicyConfig
from schemas.config.training import GroupConfig, TrainConfig

COUNTS = (3, 1, 4, 2)
GAINS = (1.0, -0.5, -2.0, 0.7)
ROWS = torch.arange(len(COUNTS)).repeat_interleave(torch.tensor(COUNTS))


def objective(
    old: Tensor, served: Tensor, counts: Sequence[int] = COUNTS, gains: Sequence[float] = GAINS, **group: object
) -> GroupObjective:
    train = TrainConfig(method="grpo", group=GroupConfig.model_validate({"ratio": "sequence", **group}))
    here = Path()
    plan = Job(
        parent=here,
        out=here,
        samples=here,
        screenshots=here,
        steps=1,
        learning_rate=1.0,
        policy=PolicyConfig(),
        train=train,
    )
    made = GroupObjective(plan, None)  # type: ignore[arg-type]  # the loss asks no network
    parts = served.split(list(counts))
    made.documents(
        [
            Rollout(f"t{at}", 0, "task", (), "", (), "", tuple(range(len(part))), tuple(part.tolist()), advantage=gain)
            for at, (part, gain) in enumerate(zip(parts, gains, strict=True))
        ]
    )
    made.begin(counts, old)
    return made


def as_printed(new: Tensor, old: Tensor, served: Tensor, low: float, high: float) -> Tensor:
    """Eq. 5 with its tokens' weights, reply by reply."""
    total = torch.zeros((), dtype=new.dtype)
    for part, before, drawn, gain in zip(*(one.split(COUNTS) for one in (new, old, served)), GAINS, strict=True):
        ratio = (part - before).mean().exp()  # the geometric mean of the tokens' ratios
        tokens = ratio.detach() * (part - part.detach()).exp()
        weights = (before - drawn).exp().clamp(max=1.0)
        kept = torch.minimum(tokens * gain, tokens.clamp(1 - low, 1 + high) * gain)
        total = total - (weights * kept).mean() / len(COUNTS)
    return total


@pytest.mark.parametrize("pieces", [[range(10)], [range(0, 2), range(2, 7), range(7, 10)]])
@pytest.mark.parametrize("scale", [0.05, 0.6])
def test_replies_are_clipped_by_the_mean_of_their_tokens(pieces: list[range], scale: float) -> None:
    torch.manual_seed(0)
    old = -torch.rand(10, dtype=torch.float64) - 0.1
    served = old + 0.1 * torch.randn(10, dtype=torch.float64)
    new = (old + scale * torch.randn(10, dtype=torch.float64)).requires_grad_()
    (expected,) = torch.autograd.grad(as_printed(new, old, served, 0.1, 0.28), new)
    made = objective(old, served, clip_low=0.1)
    made.weigh(torch.zeros(4, dtype=torch.float64).index_add(0, ROWS, new.detach()), torch.arange(4))
    for piece in pieces:
        at = torch.tensor(list(piece))
        outputs = Outputs(new[at], torch.zeros(0), torch.ones(len(at)), at, ROWS[at])
        made.loss(None, outputs, Batch([0, 1, 2, 3], 10, [], [])).backward()
    assert new.grad is not None
    torch.testing.assert_close(new.grad, expected)
    counted = made.metrics(made.counts)
    assert counted["tokens"] == 10 and (counted["clipped"] > 0) == bool((expected == 0).any())


def test_a_reply_without_tokens_is_in_no_mean() -> None:
    torch.manual_seed(1)
    old = -torch.rand(7, dtype=torch.float64) - 0.1
    sums = torch.stack([part.sum() for part in old.split([3, 4])]) + 0.05
    found = objective(old, old, (3, 0, 4), (1.0, -9.0, -2.0)).weigh(
        torch.cat([sums[:1], torch.zeros(1, dtype=torch.float64), sums[1:]]), torch.arange(3)
    )
    torch.testing.assert_close(found, objective(old, old, (3, 4), (1.0, -2.0)).weigh(sums, torch.arange(2)))
