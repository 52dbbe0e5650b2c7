"""Advantages over tokens: skipped observations, decoupled lambdas."""

import numpy as np
import pytest

from learning.algorithms.returns import advantages, decoupled, length_adaptive_lambda

REWARDS = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
VALUES = [0.2, 0.3, 0.1, 0.5, 0.6, 0.7]
MASK = [1, 1, 0, 0, 1, 1]


def test_values_on_skipped_tokens_change_nothing() -> None:
    other = [0.2, 0.3, 99.0, -99.0, 0.6, 0.7]
    one, two = (advantages(REWARDS, values, MASK, 0.9, 0.95) for values in (VALUES, other))
    assert one.tolist() == two.tolist()


def test_skipping_tokens_is_leaving_them_out() -> None:
    said = np.array(MASK, dtype=bool)
    whole = advantages(REWARDS, VALUES, MASK, 0.9, 0.8)[said]
    alone = advantages(np.array(REWARDS)[said], np.array(VALUES)[said], np.ones(4), 0.9, 0.8)
    assert whole.tolist() == alone.tolist()


def test_the_critics_target_is_the_monte_carlo_return_whatever_the_values_and_the_policys_lambda() -> None:
    for values in (VALUES, np.zeros(6), np.full(6, 5.0)):
        _, targets = decoupled(REWARDS, values, np.ones(6), 1.0, 0.5)
        assert targets == pytest.approx(np.ones(6))


def test_rows_have_their_own_lambda_and_equal_a_fixed_one() -> None:
    lams = np.array([0.0, 0.5, 1.0])
    rows = advantages([REWARDS] * 3, [VALUES] * 3, [MASK] * 3, 1.0, lams)
    for row, lam in zip(rows, lams, strict=True):
        assert row.tolist() == advantages(REWARDS, VALUES, MASK, 1.0, float(lam)).tolist()


def test_the_lambdas_of_a_long_play_add_up_to_a_share_of_its_length() -> None:
    for length in (40, 400, 4000):
        lam = float(length_adaptive_lambda(length, 0.05))
        assert 1 / (1 - lam) == pytest.approx(0.05 * length)
