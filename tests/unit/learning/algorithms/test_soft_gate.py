"""`train.group.ratio` `soft` (SAPO, arXiv 2511.20347): the gate's published values, and the mean over replies."""

import math
from collections.abc import Sequence

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from learning.algorithms.grpo import token_losses
from learning.algorithms.losses import soft_gate_loss
from learning.engines.engine import Batch, Outputs
from schemas.config.training import GroupConfig, TrainConfig
from tests.unit.learning.algorithms.test_sequence_ratio import COUNTS, GAINS, ROWS, objective

TEMPERATURES = ((1.0, 1.0), (-1.0, 1.05))
"""The sign of the advantage and tau: the values of the paper, and TRL's defaults."""


@pytest.mark.parametrize(
    ("ratio", "values", "weights"),
    [
        (0.5, (1.510163, 1.415938), (0.940015, 0.934140)),
        (0.8, (1.800664, 1.705494), (0.990066, 0.989056)),
        (1.0, (2.0, 1.904762), (1.0, 1.0)),
        (1.2, (2.199336, 2.104030), (0.990066, 0.989056)),
        (2.0, (2.924234, 2.822000), (0.786448, 0.768110)),
        (4.0, (3.810297, 3.652986), (0.180707, 0.157611)),
    ],
)
def test_the_gate_has_the_papers_values(ratio: float, values: Sequence[float], weights: Sequence[float]) -> None:
    for (gain, _), value, weight in zip(TEMPERATURES, values, weights, strict=True):
        logprobs = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
        loss, kept = soft_gate_loss(logprobs, torch.zeros_like(logprobs), torch.full_like(logprobs, gain))
        loss.sum().backward()
        assert loss.item() == pytest.approx(-value * gain, abs=1e-6)
        assert kept.item() == pytest.approx(weight, abs=1e-6)
        assert logprobs.grad is not None
        assert logprobs.grad.item() == pytest.approx(-weight * ratio * gain, abs=4e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("gap", [-1e4, -89.0, 89.0, 1e4])
@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_far_ratios_have_a_finite_loss_and_no_gradient(gap: float, advantage: float, dtype: torch.dtype) -> None:
    logprobs = torch.tensor([gap], dtype=dtype, requires_grad=True)
    loss, _ = soft_gate_loss(logprobs, torch.zeros(1, dtype=dtype), torch.tensor([advantage], dtype=dtype))
    loss.sum().backward()
    assert logprobs.grad is not None
    assert loss.isfinite().all() and logprobs.grad.item() == 0.0


def as_printed(new: Tensor, old: Tensor, served: Tensor, positive: float, negative: float) -> Tensor:
    """The paper's loss, reply by reply, with the weights of tokens that were sampled with other probabilities."""
    total = torch.zeros((), dtype=new.dtype)
    for part, before, drawn, gain in zip(*(one.split(COUNTS) for one in (new, old, served)), GAINS, strict=True):
        tau = positive if gain > 0 else negative
        gated = 4 / tau / (1 + (-tau * ((part - before).exp() - 1)).exp()) * gain
        total = total - ((before - drawn).exp().clamp(max=1.0) * gated).mean() / len(COUNTS)
    return total


@pytest.mark.parametrize("pieces", [[range(10)], [range(0, 2), range(2, 7), range(7, 10)]])
@pytest.mark.parametrize("scale", [0.05, 1.5])
def test_replies_have_equal_weights_however_the_batch_is_cut(pieces: list[range], scale: float) -> None:
    torch.manual_seed(0)
    old = -torch.rand(10, dtype=torch.float64) - 0.1
    served = old + 0.1 * torch.randn(10, dtype=torch.float64)
    new = (old + scale * torch.randn(10, dtype=torch.float64)).requires_grad_()
    expected = as_printed(new, old, served, 1.2, 2.0)
    (slopes,) = torch.autograd.grad(expected, new)
    made = objective(old, served, ratio="soft", gate_positive=1.2, gate_negative=2.0)
    assert not made.needs_sums
    total = 0.0
    for piece in pieces:
        at = torch.tensor(list(piece))
        outputs = Outputs(new[at], torch.zeros(0), torch.ones(len(at)), at, ROWS[at])
        loss = made.loss(None, outputs, Batch([0, 1, 2, 3], 10, [], []))
        loss.backward()
        total += loss.item()
    assert total == pytest.approx(expected.item())
    assert new.grad is not None
    torch.testing.assert_close(new.grad, slopes)


def test_a_reply_without_tokens_is_in_no_mean() -> None:
    old = torch.full((7,), -1.0, dtype=torch.float64)
    found = []
    for counts, gains in (((3, 4), (1.0, -2.0)), ((3, 0, 4), (1.0, -9.0, -2.0))):
        rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        outputs = Outputs(old + 0.1, torch.zeros(0), torch.ones(7), torch.arange(7), rows)
        batch = Batch(list(range(len(counts))), 7, [], [])
        found.append(objective(old, old, counts, gains, ratio="soft").loss(None, outputs, batch).item())
    assert found[0] == found[1] != 0


def test_a_token_whose_gradient_is_more_than_halved_counts_as_clipped() -> None:
    old = torch.zeros(4)
    new = torch.tensor([0.0, math.log(2.0), math.log(4.0), math.log(4.0)])
    gains = torch.tensor([1.0, 1.0, 1.0, 0.0])
    _, counts = token_losses(new, old, old, gains, GroupConfig(ratio="soft"))
    assert counts[3] == 1


@pytest.mark.parametrize(("name", "ratio"), [("sapo", "soft"), ("GSPO", "sequence")])
def test_a_method_that_is_a_ratio_is_named(name: str, ratio: str) -> None:
    with pytest.raises(ValidationError, match=f"set method to grpo, and group.ratio to {ratio}"):
        TrainConfig(method=name)
