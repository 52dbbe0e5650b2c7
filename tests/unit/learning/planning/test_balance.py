"""Post-balancing: which rank computes which sample."""

import itertools
import time

import numpy as np
import pytest

from learning.planning.balance import BalanceCost, loads, longest_first, near_holders, padded
from schemas.failure import PlanError
from tests.fixtures.sentences import Sentences


def padded_cost(lengths: np.ndarray, plan: np.ndarray, ranks: int, cost: BalanceCost) -> int:
    groups = [lengths[plan == rank] for rank in range(ranks)]
    return max(int(len(group) * cost.of(group.max(initial=0))) for group in groups)


@pytest.mark.parametrize("case", range(60))
def test_longest_first_is_within_four_thirds_of_the_best(case: int):
    draw = np.random.default_rng(case)
    ranks, work = 2 + case % 3, draw.integers(1, 100, size=3 + case % 6)
    best = min(
        int(loads(work, np.array(plan), ranks).max()) for plan in itertools.product(range(ranks), repeat=len(work))
    )
    assert loads(work, longest_first(work, ranks), ranks).max() <= (4 / 3 - 1 / (3 * ranks)) * best + 1e-9


def greedy(work: np.ndarray, ranks: int) -> int:
    done = [0] * ranks
    for cost in sorted(work.tolist(), reverse=True):
        done[done.index(min(done))] += cost
    return max(done)


@pytest.mark.parametrize("case", range(40))
def test_swaps_never_leave_more_to_the_slowest_rank_than_the_greedy_rule_does(case: int):
    draw = np.random.default_rng(case)
    ranks, work = 2 + case % 7, draw.integers(1, 100, size=5 + 2 * case)
    plan = longest_first(work, ranks)
    assert loads(work, plan, ranks).sum() == work.sum() and loads(work, plan, ranks).max() <= greedy(work, ranks)


def test_few_samples_of_like_cost_are_levelled_by_swaps():
    assert loads([3, 3, 2, 2, 2], longest_first([3, 3, 2, 2, 2], 2), 2).tolist() == [6, 6]
    work = np.random.default_rng(1).integers(100, 200, size=3 * 64)
    best = work.sum() / 64
    assert greedy(work, 64) > 1.03 * best
    assert loads(work, longest_first(work, 64), 64).max() <= 1.015 * best


@pytest.mark.parametrize("case", range(20))
def test_swaps_keep_every_rank_under_the_cap(case: int):
    draw = np.random.default_rng(case)
    tokens, work = draw.integers(10, 100, size=40), draw.integers(100, 200, size=40)
    cap = int(1.15 * tokens.sum() / 5)
    assert loads(tokens, longest_first(work, 5, tokens, cap), 5).max() <= cap


@pytest.mark.parametrize("case", range(400))
def test_padded_batches_are_shared_out_as_well_as_brute_force_can(case: int):
    draw = np.random.default_rng(case)
    ranks, lengths = 2 + case % 2, draw.integers(1, 30, size=2 + case % 6)
    cost = BalanceCost(int(draw.integers(0, 40)), int(draw.integers(0, 3)) or 1)
    best = min(
        padded_cost(lengths, np.array(plan), ranks, cost)
        for plan in itertools.product(range(ranks), repeat=len(lengths))
    )
    assert padded_cost(lengths, padded(lengths, ranks, cost), ranks, cost) == best


def test_the_same_lengths_give_the_same_plan_and_ties_go_by_index_and_rank():
    assert longest_first([5, 5, 5, 5], 2).tolist() == [0, 1, 0, 1]
    draw = np.random.default_rng(0).integers(1, 9, size=500)
    assert longest_first(draw, 7).tolist() == longest_first(draw.tolist(), 7).tolist()


def test_no_rank_holds_more_tokens_than_the_cap_where_balance_alone_would():
    tokens = np.array([60, 50, 10, 10, 10])
    costs = np.array([100, 1, 1, 1, 1])
    assert loads(tokens, longest_first(costs, 2), 2).max() == 80
    capped = longest_first(costs, 2, tokens, cap=70)
    assert loads(tokens, capped, 2).max() <= 70


def test_a_sample_over_the_cap_is_refused_by_number_and_length(sentence: Sentences):
    with sentence.raises(PlanError, hint="train.batch"):
        longest_first([1, 1], 2, [10, 500], cap=100)
    with pytest.raises(PlanError, match="0 ranks"):
        longest_first([1], 0)


def test_more_ranks_than_samples_leaves_ranks_empty():
    assert sorted(longest_first([3, 2], 5).tolist()) == [0, 1]
    assert len(set(padded([3, 2], 5, BalanceCost(1, 0)).tolist())) == 2


@pytest.mark.parametrize("case", range(30))
def test_renaming_ranks_keeps_the_shares_and_loses_no_byte_at_home(case: int):
    draw = np.random.default_rng(case)
    ranks, per_node, count = 6, 2, 30
    holders, sizes = draw.integers(0, ranks, count), draw.integers(1, 1000, count)
    plan = longest_first(sizes, ranks)
    renamed = near_holders(holders, plan, sizes, ranks, per_node)

    def at_home(ranked: np.ndarray) -> int:
        return int(sizes[ranked // per_node == holders // per_node].sum())

    assert sorted(loads(sizes, renamed, ranks)) == sorted(loads(sizes, plan, ranks))
    best = max(at_home(np.array(names)[plan]) for names in itertools.permutations(range(ranks)))
    assert at_home(renamed) == best


def test_two_phases_of_forty_thousand_samples_are_planned_in_a_moment():
    draw = np.random.default_rng(0)
    phases = [draw.integers(1, 10**9, 40_960) for _ in range(2)]
    started = time.perf_counter()
    for costs in phases:
        longest_first(costs, 2_560)
    assert time.perf_counter() - started < 1.0
