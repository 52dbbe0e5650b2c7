"""Losses against closed forms."""

import math

import pytest
import torch

from learning.algorithms.losses import place_logprobs, soft_bins, token_logprobs


def test_soft_bins_are_a_distribution_centred_on_the_place() -> None:
    shares = soft_bins(torch.tensor([3.0, 5.25]), 11, 2.0)
    assert torch.allclose(shares.sum(1), torch.ones(2))
    assert shares.argmax(1).tolist() == [3, 5]
    assert shares[0, 4] / shares[0, 3] == pytest.approx(math.exp(-1 / 8))


def test_without_spread_the_nearest_bin_holds_all() -> None:
    assert soft_bins(torch.tensor([2.4]), 5, 0.0).tolist() == [[0, 0, 1, 0, 0]]


def test_even_logits_cost_the_log_of_the_choices() -> None:
    logits, cost = torch.zeros(2, 8), [-math.log(8)] * 2
    assert token_logprobs(logits, torch.tensor([1, 2])).tolist() == pytest.approx(cost)
    places = place_logprobs(logits, torch.tensor([0.0, 1.0]), torch.tensor([2, 2]), 4, 1.0)
    assert places.tolist() == pytest.approx(cost)


def test_a_near_miss_costs_less_than_a_far_one() -> None:
    logits = torch.zeros(2, 20)
    logits[0, 6] = logits[1, 15] = 5.0
    near, far = place_logprobs(logits, torch.tensor([5.0, 5.0]), torch.tensor([0, 0]), 20, 2.0)
    assert near > far
