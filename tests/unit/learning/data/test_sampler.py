"""The stateless sampler: a sample is a function of seed, epoch and position; shares are kept."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.data.rounds import FixedOrder, Sampler, by_sample


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=30).filter(lambda weights: sum(weights) > 0.1), st.integers(0, 99)
)
def test_every_sample_comes_its_share_of_an_epoch_rounded(weights: list[float], seed: int) -> None:
    sampler = Sampler(weights, seed)
    seen = Counter(sampler.sample(position) for position in range(len(weights)))
    for index, weight in enumerate(weights):
        assert abs(seen[index] - weight / sum(weights) * len(weights)) < 1 + 1e-9


def test_any_position_can_be_asked_for_in_any_order() -> None:
    forward = [Sampler([1, 2, 3], 5).sample(position) for position in range(12)]
    sampler = Sampler([1, 2, 3], 5)
    assert [sampler.sample(position) for position in reversed(range(12))] == forward[::-1]


def test_another_seed_is_another_order() -> None:
    orders = {tuple(Sampler([1.0] * 20, seed).sample(position) for position in range(20)) for seed in range(3)}
    assert len(orders) == 3


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -1.0], [float("nan")]])
def test_weights_that_are_no_shares_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        Sampler(weights, 0)


def test_positions_that_are_drawn_beforehand_are_those_that_would_be_drawn_later() -> None:
    sampler = Sampler([3.0, 1.0, 1.0], 7)
    order = sampler.first(20)
    assert order.tolist() == [sampler.sample(position) for position in range(20)]
    fixed = FixedOrder(order)
    assert [fixed.sample(position) for position in range(20)] == order.tolist()


def test_who_comes_when_is_told_by_sample_too() -> None:
    order = Sampler([1.0, 0.0, 1.0, 5.0], 1).first(9)
    ids, starts, positions = by_sample(order)
    assert [sorted(positions[start:end]) for start, end in pairwise(starts)] == [
        [position for position in range(9) if order[position] == sample] for sample in ids
    ]
