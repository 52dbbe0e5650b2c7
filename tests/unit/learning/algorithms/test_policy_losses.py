"""Losses of reinforcement learning and preferences against closed forms."""

import math

import pytest
import torch

from learning.algorithms.losses import (
    clipped_loss,
    dpo_loss,
    kl_loss,
    positive_loss,
    token_mean,
    truncated_weights,
    value_loss,
)


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [(1.0, 1.0, True), (1.27, 1.0, True), (1.29, 1.0, False), (0.79, -1.0, False), (1.5, -1.0, True), (0.5, 1.0, True)],
)
def test_beyond_the_clip_the_gradient_is_0(ratio: float, advantage: float, moves: bool) -> None:
    logprobs = torch.tensor([math.log(ratio)], requires_grad=True)
    clipped_loss(logprobs, torch.zeros(1), torch.tensor([advantage])).sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(-ratio * advantage if moves else 0.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("gap", [-1e4, -89.0, 89.0, 1e4])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_a_policy_that_is_far_from_where_it_was_has_a_finite_loss_and_gradient(
    gap: float, advantage: float, dtype: torch.dtype
) -> None:
    logprobs = torch.tensor([gap], dtype=dtype, requires_grad=True)
    loss = clipped_loss(logprobs, torch.zeros(1, dtype=dtype), torch.tensor([advantage], dtype=dtype)).sum()
    loss.backward()
    assert logprobs.grad is not None
    assert loss.isfinite() and logprobs.grad.item() == 0.0


@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_ratios_up_to_e_to_the_20_are_what_they_are(advantage: float) -> None:
    gaps = torch.linspace(-19.9, 19.9, 41, dtype=torch.float64, requires_grad=True)
    gain = torch.full_like(gaps, advantage)
    ratio = gaps.exp()
    plain = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.28) * gain)
    made = clipped_loss(gaps, torch.zeros_like(gaps), gain)
    assert torch.equal(made, plain)
    assert torch.equal(*(torch.autograd.grad(loss.sum(), gaps, retain_graph=True)[0] for loss in (made, plain)))


def test_every_token_counts_the_same_in_short_and_in_long_replies() -> None:
    values = torch.tensor([[1.0, 9.0, 9.0], [4.0, 4.0, 4.0]])
    mask = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    assert token_mean(values, mask).item() == pytest.approx(13 / 4)
    parts = [token_mean(values[row], mask[row], tokens=4.0).item() for row in range(2)]
    assert sum(parts) == pytest.approx(13 / 4)


def test_no_token_no_loss() -> None:
    assert token_mean(torch.ones(2, 3), torch.zeros(2, 3)).item() == 0.0


def test_weights_of_what_another_policy_said_are_1_where_it_agrees_and_never_above_the_cap() -> None:
    old = torch.tensor([-1.0, -0.5, -3.0], requires_grad=True)
    weights = truncated_weights(old, torch.tensor([-1.0, -2.0, -1.0]), most=1.0)
    assert weights.tolist() == pytest.approx([1.0, 1.0, math.exp(-2.0)])
    assert not weights.requires_grad


def test_a_value_may_not_move_far_from_where_it_was() -> None:
    values, old, returns = torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([1.0])
    assert value_loss(values, old, returns).item() == 0.0
    assert value_loss(values, old, returns, clip=0.2).item() == pytest.approx(0.5 * 0.8**2)
    assert value_loss(old, old, returns, clip=0.2).item() == pytest.approx(0.5)


def test_the_positive_loss_is_supervised_training_on_what_succeeded() -> None:
    logprobs = torch.tensor([[-1.0, -3.0], [-5.0, -5.0]])
    mask = torch.ones(2, 2)
    assert positive_loss(logprobs, mask, torch.tensor([True, False])).item() == pytest.approx(2.0)
    assert positive_loss(logprobs, mask, torch.tensor([False, False])).item() == 0.0


def test_a_policy_that_is_its_reference_pays_ln_2_whatever_the_pair() -> None:
    chosen, rejected = torch.tensor([-3.0, -1.0]), torch.tensor([-1.0, -8.0])
    assert dpo_loss(chosen, rejected, chosen, rejected, 0.7).tolist() == pytest.approx([math.log(2)] * 2)


def test_preferring_the_chosen_reply_costs_less() -> None:
    zero = torch.zeros(1)
    assert dpo_loss(zero + 1, zero - 1, zero, zero, 0.1) < dpo_loss(zero - 1, zero + 1, zero, zero, 0.1)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "moves"),
    [(2.0, -1.0, 2.0, True), (5.0, -2.0, 6.0, False), (0.5, -1.0, 0.8, False), (5.0, 1.0, -1.28, False)],
)
def test_a_dual_clip_bounds_the_loss_of_what_is_to_become_rarer(
    ratio: float, advantage: float, loss: float, moves: bool
) -> None:
    logprobs = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    made = clipped_loss(logprobs, torch.zeros(1), torch.tensor([advantage]), dual=3.0).sum()
    made.backward()
    assert made.item() == pytest.approx(loss)
    assert logprobs.grad is not None and bool(logprobs.grad.item()) is moves


def test_the_divergence_is_never_below_0_and_in_the_mean_what_it_estimates() -> None:
    policy, reference = torch.tensor([0.7, 0.2, 0.1]).double(), torch.tensor([0.5, 0.1, 0.4]).double()
    terms = kl_loss(policy.log(), reference.log())
    assert terms.min() >= 0
    assert (policy * terms).sum().item() == pytest.approx((policy * (policy / reference).log()).sum().item())
    assert kl_loss(torch.tensor([-1e4]), torch.zeros(1)).isfinite().all()
