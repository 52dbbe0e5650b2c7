"""`train.method=opd`: the loss of prime-rl by hand-computed values, and its gradient."""

import math

import pytest
import torch

from learning.algorithms.losses import distilled_loss


@pytest.mark.parametrize(
    ("new", "served", "teacher", "loss", "kept"),
    [
        (-0.5, -0.5, -0.2, -0.3, True),
        (-1.2, -1.0, -3.0, 1.473755, True),
        (-0.1, -0.05, -0.1, 2.5e-6, True),
        (-2.0, -0.5, -1.0, 2.25e-3, False),
    ],
)
def test_the_loss_of_a_token_has_the_values_of_the_authors_code(
    new: float, served: float, teacher: float, loss: float, kept: bool
) -> None:
    first, second, third = (torch.tensor([one], dtype=torch.float64) for one in (new, served, teacher))
    losses, keeps = distilled_loss(first, second, third)
    assert losses.item() == pytest.approx(loss, abs=5e-7) and bool(keeps) == kept


@pytest.mark.parametrize(("served", "kept"), [(-1.0, 1.0), (-0.3, 0.0)])
def test_the_gradient_is_the_ratio_times_the_distance_without_a_gradient_of_the_distance(
    served: float, kept: float
) -> None:
    logprobs = torch.tensor([-1.2], dtype=torch.float64, requires_grad=True)
    losses, _ = distilled_loss(logprobs, torch.full_like(logprobs, served), torch.full_like(logprobs, -0.7))
    losses.sum().backward()
    moved = -1.2 - served
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(-kept * math.exp(moved) * 0.5 + 2e-3 * moved, abs=1e-12)


def test_the_mean_gradient_over_sampled_tokens_is_that_of_the_reverse_divergence() -> None:
    torch.manual_seed(0)
    logits = torch.randn(7, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(7, dtype=torch.float64).log_softmax(-1)
    logprobs = logits.log_softmax(-1)
    (exact,) = torch.autograd.grad((logprobs.exp() * (logprobs - teacher)).sum(), logits, retain_graph=True)
    losses, keeps = distilled_loss(logprobs, logprobs.detach(), teacher)
    (sampled,) = torch.autograd.grad((logprobs.detach().exp() * losses).sum(), logits)
    assert keeps.all() and torch.allclose(sampled, exact, atol=1e-12)


def test_the_limit_of_the_fall_and_the_penalty_are_options() -> None:
    new, served, teacher = (torch.tensor([one], dtype=torch.float64) for one in (-2.0, -0.5, -1.0))
    losses, keeps = distilled_loss(new, served, teacher, max_fall=0.5, ratio_penalty=0.0)
    assert keeps.all() and losses.item() == pytest.approx(-math.exp(-1.5))


@pytest.mark.parametrize("gap", [-1e4, 1e4])
def test_far_ratios_have_a_finite_loss_and_no_gradient(gap: float) -> None:
    logprobs = torch.tensor([min(gap, 0.0)], requires_grad=True)
    losses, _ = distilled_loss(logprobs, logprobs.detach() - gap, torch.full_like(logprobs, -1.0))
    losses.sum().backward()
    assert logprobs.grad is not None
    assert losses.isfinite().all() and logprobs.grad.item() == 0.0
