"""Group advantages: closed forms, and what must teach nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learning.algorithms.advantages import centred, is_informative, of_group, soft_overlong

RATES = st.lists(st.sampled_from([0.0, 1.0, -1.0, 0.5]), min_size=1, max_size=12)


def test_a_group_of_equal_rewards_teaches_nothing() -> None:
    for reward in (0.0, 1.0, 0.1):
        assert not of_group([reward] * 7).any()
        assert not is_informative([reward] * 7)


def test_a_group_of_one_teaches_nothing() -> None:
    assert of_group([1.0]).tolist() == [0.0]
    assert not is_informative([1.0])


def test_an_environment_failure_enters_no_mean_and_has_no_advantage_of_its_own() -> None:
    alone = of_group([1.0, 0.0, 0.0])
    found = of_group([1.0, math.nan, 0.0, math.nan, 0.0])
    assert found.tolist() == [alone[0], 0.0, alone[1], 0.0, alone[2]]
    assert not of_group([math.nan, math.nan]).any()
    assert not is_informative([1.0, math.nan]) and is_informative([1.0, math.nan, 0.0])


def test_rewards_that_differ_by_rounding_alone_are_equal() -> None:
    for rewards in ([0.1 + 0.2] * 3 + [0.3], [0.7, 0.7, 0.1 * 7]):
        assert not of_group(rewards).any() and not is_informative(rewards)


def test_rewards_of_0_and_1_have_the_closed_form() -> None:
    share = 2 / 8
    found = of_group([1.0] * 2 + [0.0] * 6)
    assert found[0] == pytest.approx(math.sqrt((1 - share) / share))
    assert found[-1] == pytest.approx(-math.sqrt(share / (1 - share)))


def test_the_sample_deviation_gives_the_numbers_of_the_public_code() -> None:
    found = centred(np.array([1.0] * 3 + [0.0] * 5), ddof=1)
    assert (found[0], found[-1]) == (pytest.approx(1.2076, abs=1e-4), pytest.approx(-0.7246, abs=1e-4))


@given(RATES)
def test_advantages_are_centred_and_of_one_size(rewards: list[float]) -> None:
    found = of_group(rewards)
    assert found.sum() == pytest.approx(0.0, abs=1e-9)
    assert found.std() == pytest.approx(1.0) if is_informative(rewards) else not found.any()


def test_short_replies_are_not_punished_and_a_penalty_is_never_more_than_one() -> None:
    found = soft_overlong([0, 6, 8, 10, 50], longest=10, cache=4)
    assert found.tolist() == [0.0, 0.0, -0.5, -1.0, -1.0]
