"""Pass@k advantages against brute force over all groups, and what the papers claim of them."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from learning.algorithms.advantages import (
    adaptive,
    analytic,
    bootstrap,
    centred,
    combined,
    exceeding,
    full_sampling,
    pass_at_k,
)


def rewards(n: int, successes: int) -> np.ndarray:
    return np.array([1.0] * successes + [0.0] * (n - successes))


def by_hand(n: int, successes: int, k: int) -> np.ndarray:
    """The mean over every group of k that a trajectory is in of (group reward - mean) / deviation."""
    groups = list(combinations(range(n), k))
    best = np.array([float(min(group) < successes) for group in groups])
    if best.std() == 0:
        return np.zeros(n)
    scores = (best - best.mean()) / best.std()
    return np.array(
        [np.mean([score for score, group in zip(scores, groups, strict=True) if at in group]) for at in range(n)]
    )


@pytest.mark.parametrize("n", [4, 6, 8])
def test_the_analytic_advantage_is_the_mean_over_all_groups_and_adds_up_to_0(n: int) -> None:
    for k in range(1, n + 1):
        for wins in range(n + 1):
            found = analytic(rewards(n, wins), k)
            assert found == pytest.approx(by_hand(n, wins, k), abs=1e-9)
            assert found.sum() == pytest.approx(0.0, abs=1e-9)


def published(n: int, successes: int, k: int) -> tuple[float, float]:
    """A+ and A- by equations 11 to 15 as they are printed, in exact fractions."""
    lost = n - successes
    rho = 1 - Fraction(math.comb(lost, k), math.comb(n, k))
    sigma = math.sqrt(rho * (1 - rho))
    failure = 1 - rho - Fraction(math.comb(lost - 1, k - 1), math.comb(n - 1, k - 1))
    return float(1 - rho) / sigma, float(failure) / sigma


@pytest.mark.parametrize(("n", "successes", "k"), [(8, 2, 4), (57, 20, 8), (58, 29, 29), (100, 50, 50), (10_000, 3, 7)])
def test_the_published_equations_hold_to_the_last_digits_however_many_trajectories(
    n: int, successes: int, k: int
) -> None:
    found = analytic(rewards(n, successes), k)
    assert (found[0], found[-1]) == pytest.approx(published(n, successes, k), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("n", [58, 1_000, 10_000])
def test_the_advantages_of_large_groups_are_numbers_and_add_up_to_0(n: int) -> None:
    for k in (1, 2, n // 2, n - 1, n):
        for successes in (0, 1, n // 2, n - 1, n):
            found = analytic(rewards(n, successes), k)
            assert np.isfinite(found).all()
            assert abs(found.sum()) <= 1e-9 * max(1.0, float(np.abs(found).sum()))


def test_k_of_1_is_the_pass_at_1_advantage() -> None:
    for wins in range(9):
        assert analytic(rewards(8, wins), 1) == pytest.approx(centred(rewards(8, wins)))


def test_easy_tasks_and_unsolved_ones_switch_off() -> None:
    assert not analytic(rewards(8, 5), 4).any()
    assert not analytic(rewards(8, 0), 4).any()
    assert not analytic(rewards(3, 1), 4).any()


def test_members_of_a_full_group_share_its_advantage_and_the_surplus_gets_none() -> None:
    found = full_sampling(np.array([0.0, 1.0, 0.0, 0.0, 1.0]), 2)
    assert found.tolist() == [1.0, 1.0, -1.0, -1.0, 0.0]


def test_the_bootstrap_tends_to_the_analytic_advantage_times_groups_k_over_n() -> None:
    groups, n, k = 40_000, 8, 4
    found = bootstrap(rewards(n, 2), k, groups, np.random.default_rng(0)) / (groups * k / n)
    assert found == pytest.approx(analytic(rewards(n, 2), k), abs=0.02)


def test_the_combination_is_the_papers() -> None:
    hard, easy = combined(rewards(8, 2), 4), combined(rewards(8, 6), 4)
    assert (hard[0], hard[-1]) == (pytest.approx(1.429596, abs=1e-6), pytest.approx(-0.476532, abs=1e-6))
    assert (easy[0], easy[-1]) == (pytest.approx(0.144338, abs=1e-6), pytest.approx(-0.433013, abs=1e-6))


def test_exceeding_moves_the_most_effort_to_one_success() -> None:
    effort = [float(np.abs(exceeding(rewards(32, wins), 8)).sum()) for wins in range(33)]
    assert int(np.argmax(effort)) == 1


def test_exactly_the_more_uncertain_half_of_the_groups_takes_the_pass_at_1_advantage() -> None:
    group = rewards(8, 2)
    found = adaptive([group] * 4, [0.1, 0.9, 0.5, 0.2], 4)
    plain = [np.allclose(each, centred(group)) for each in found]
    assert plain == [False, True, True, False]
    assert sum(np.allclose(each, analytic(group, 4)) for each in found) == 2


def test_rewards_between_0_and_1_are_refused() -> None:
    with pytest.raises(ValueError, match="0 and 1"):
        analytic(np.array([0.5, 1.0]), 2)


def test_the_estimate_of_pass_at_k_is_the_share_of_groups_with_a_success() -> None:
    assert pass_at_k(8, 3, 4) == pytest.approx(0.928571, abs=1e-6)
    for wins in range(7):
        share = np.mean([min(group) < wins for group in combinations(range(6), 3)])
        assert pass_at_k(6, wins, 3) == pytest.approx(share)
    with pytest.raises(ValueError, match=r"pass@4"):
        pass_at_k(3, 1, 4)
    assert math.isclose(pass_at_k(5, 2, 1), 0.4)
