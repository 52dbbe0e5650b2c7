"""Intervals cover what they claim to cover, also near 0 and 1."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.intervals import mean_interval, paired, paired_difference, wilson


def test_wilson_agrees_with_a_published_value() -> None:
    interval = wilson(81, 263)
    assert (round(interval.low, 3), round(interval.high, 3)) == (0.255, 0.366)


def test_nothing_rolled_out_has_no_interval() -> None:
    for interval in (wilson(0, 0), mean_interval([], []), mean_interval([0], [0]), paired_difference({}, {})):
        assert interval.n == 0
        assert math.isnan(interval.mean)


@given(st.integers(0, 50), st.integers(1, 50))
def test_wilson_stays_within_0_and_1_and_around_the_rate(successes: int, more: int) -> None:
    interval = wilson(successes, successes + more)
    assert 0.0 <= interval.low <= interval.mean <= interval.high <= 1.0


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=15))
def test_the_mean_over_tasks_stays_within_0_and_1_and_inside_its_interval(counts: list[tuple[int, int]]) -> None:
    interval = mean_interval([s for s, _ in counts], [s + f for s, f in counts])
    if interval.n:
        assert 0.0 <= interval.low <= interval.mean <= interval.high <= 1.0


def test_all_failures_are_not_certain() -> None:
    interval = mean_interval([0] * 12, [20] * 12)
    assert interval.mean == interval.low == 0.0
    assert 0.0 < interval.high < 0.05


@pytest.mark.parametrize("rates", [[0.5] * 12, [0.05, 0.1, 0.9, 0.95] * 3, [0.0, 0.02, 0.98, 1.0] * 3])
def test_the_mean_is_covered_in_about_95_percent_of_draws(rates: list[float]) -> None:
    dice, truth, hits = random.Random(1), sum(rates) / len(rates), 0
    for _ in range(1000):
        successes = [sum(dice.random() < rate for _ in range(20)) for rate in rates]
        interval = mean_interval(successes, [20] * len(rates))
        hits += interval.low <= truth <= interval.high
    assert hits >= 935


def test_only_plays_of_both_are_paired() -> None:
    candidate = {("a", 1): True, ("a", 2): True, ("b", 9): True}
    champion = {("a", 1): False, ("a", 2): True, ("c", 1): True}
    interval = paired_difference(candidate, champion)
    assert (interval.mean, interval.n) == (0.5, 2)


def test_tasks_count_alike_however_many_plays_they_have() -> None:
    candidate = {("a", seed): True for seed in range(10)} | {("b", 0): False}
    champion = {("a", seed): False for seed in range(10)} | {("b", 0): True}
    assert paired_difference(candidate, champion).mean == 0.0


def test_pairing_is_sharper_than_two_separate_means() -> None:
    dice = random.Random(2)
    champion = {(f"t{task}", seed): dice.random() < 0.5 for task in range(12) for seed in range(20)}
    candidate = {key: won or dice.random() < 0.1 for key, won in champion.items()}
    interval = paired_difference(candidate, champion)
    alone = mean_interval([10] * 12, [20] * 12)
    assert interval.low > 0.0
    assert interval.high - interval.low < alone.high - alone.low


def test_equal_plays_differ_by_nothing_and_are_not_quite_certain() -> None:
    same = {("a", seed): seed % 2 == 0 for seed in range(20)}
    interval = paired_difference(same, same)
    assert interval.mean == 0.0
    assert interval.low < 0.0 < interval.high


def test_the_difference_is_covered_in_about_95_percent_of_draws() -> None:
    dice, hits = random.Random(3), 0
    for _ in range(600):
        champion = {(f"t{task}", seed): dice.random() < 0.5 for task in range(12) for seed in range(20)}
        candidate = {key: won ^ (dice.random() < 0.1) for key, won in champion.items()}
        interval = paired_difference(candidate, champion)
        hits += interval.low <= 0.0 <= interval.high
    assert hits >= 560


@pytest.mark.parametrize("seeds", [1, 2, 4, 15])
@pytest.mark.parametrize("disagree", [0.2, 0.6])
def test_the_difference_is_covered_as_often_with_few_seeds(seeds: int, disagree: float) -> None:
    dice, hits = random.Random(4), 0
    for _ in range(800):
        drawn = {(f"t{task}", seed): dice.random() for task in range(15) for seed in range(seeds)}
        new = {key: value < disagree / 2 for key, value in drawn.items()}
        old = {key: disagree / 2 <= value < disagree for key, value in drawn.items()}
        interval = paired_difference(new, old)
        hits += interval.low <= 0.0 <= interval.high
    assert hits >= 0.92 * 800  # 15 pairs and the normal distribution: a little less than 0.95


def test_a_task_of_one_pair_is_as_uncertain_as_all_pairs_together_and_a_single_pair_says_nothing() -> None:
    many = {("a", seed): seed % 2 == 0 for seed in range(10)}
    none = dict.fromkeys(many, False)
    alone, beside = paired(many, none), paired({**many, ("b", 0): True}, {**none, ("b", 0): False})
    assert beside.variance > alone.variance
    assert paired_difference({("a", 0): True}, {("a", 0): False})[1:3] == (pytest.approx(-0.96, abs=0.001), 1.0)
