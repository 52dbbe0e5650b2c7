"""Sequence plans: groups of different degree in one step."""

import dataclasses
import itertools

import numpy as np
import pytest

from learning.sequence_plan import (
    ClusterCost,
    MicroBatch,
    buckets,
    cut,
    enumerate_and_fill,
    homogeneous,
    legal_degrees,
    mixed_integer,
    partitions,
    plan,
)
from schemas.failure import PlanError

COST = ClusterCost(
    quadratic=5e-6, linear=0.18, fixed=600.0, exchanged=2.0, bandwidth=((2, 119.0), (4, 104.0), (8, 96.0)),
    token=4.5, states=2000.0, memory=28_672.0, degrees=(1, 2, 4, 8),
)  # fmt: skip


def lengths(case: int, count: int, total: int = 40_000) -> np.ndarray:
    """Lengths with a long tail that together fit on the eight ranks at once."""
    shape = np.exp(np.random.default_rng(case).normal(0.0, 1.3, count))
    return (shape / shape.sum() * total).astype(int) + 1


def check(made: MicroBatch, batch: np.ndarray, ranks: int) -> None:
    assert sorted(index for group in made.groups for index in group.sequences) == list(range(len(batch)))
    assert sum(group.degree for group in made.groups) == ranks
    spans = []
    for group in made.groups:
        assert group.sequences and group.first % group.degree == 0
        assert batch[list(group.sequences)].sum() <= COST.capacity(group.degree)
        spans.append(COST.fixed + COST.milliseconds(batch[list(group.sequences)], group.degree).sum())
    assert max(spans) == pytest.approx(made.milliseconds)


@pytest.mark.parametrize("case", range(40))
def test_a_plan_holds_every_sequence_once_fits_and_leaves_no_rank_idle(case: int):
    batch = lengths(case, 8 + case % 20)
    made = enumerate_and_fill(batch, 8, COST)
    assert made is not None
    check(made, batch, 8)


@pytest.mark.parametrize("case", range(40))
def test_a_plan_is_never_worse_than_one_degree_for_all(case: int):
    batch = lengths(case, 8 + case % 20)
    mixed, same = enumerate_and_fill(batch, 8, COST), homogeneous(batch, 8, COST)
    assert mixed is not None and same is not None
    assert mixed.milliseconds <= same.milliseconds + 1e-9


@pytest.mark.parametrize("case", range(4))
def test_the_programme_of_the_paper_finds_feasible_plans_near_the_default_planners(case: int):
    batch = lengths(case, 8)
    best, made = mixed_integer(batch, 8, COST, number=8, seconds=20.0), enumerate_and_fill(batch, 8, COST)
    assert best is not None and made is not None
    check(best, batch, 8)
    assert made.milliseconds <= 1.04 * best.milliseconds


def test_partitions_are_counted_as_the_numbers_of_binary_partitions():
    powers = (1, 2, 4, 8, 16, 32, 64)
    assert [len(partitions(ranks, powers)) for ranks in (8, 16, 32, 64)] == [10, 36, 202, 1_828]


def test_degrees_must_divide_both_head_counts():
    assert legal_degrees(8, query_heads=28, key_heads=4) == (1, 2, 4)
    with pytest.raises(PlanError, match="6 ranks"):
        legal_degrees(6, 4, 4)


def test_a_sequence_that_fits_on_no_group_is_refused_with_its_length():
    with pytest.raises(PlanError, match="900000 tokens fits on no group"):
        plan([900_000, 10], 8, COST)


def test_a_batch_beyond_memory_is_cut_into_micro_batches_of_even_tokens():
    batch = lengths(3, 200, total=200_000)
    made = plan(batch.tolist(), 8, COST)
    assert len(made) >= -(-batch.sum() // (8 * COST.capacity(1)))
    assert sorted(index for one in made for group in one.groups for index in group.sequences) == list(range(200))


@pytest.mark.parametrize("case", range(30))
def test_cuts_have_the_least_largest_token_sum(case: int):
    draw = np.random.default_rng(case)
    batch, number = draw.integers(1, 50, size=7), 3
    inorder = np.sort(batch)
    best = min(
        max(part.sum() for part in np.split(inorder, edges))
        for edges in itertools.combinations(range(1, 7), number - 1)
    )
    pieces = cut(batch, number)
    assert len(pieces) <= number and max(batch[piece].sum() for piece in pieces) == best


@pytest.mark.parametrize("case", range(30))
def test_buckets_round_up_as_little_as_brute_force_can(case: int):
    draw = np.random.default_rng(case)
    batch, number = draw.integers(1, 60, size=8), 3
    upper, bucket = buckets(batch, number)
    assert (upper[bucket] >= batch).all() and len(upper) <= number
    values = np.unique(batch)
    best = min(
        sum(min(bound for bound in (*bounds, values[-1]) if bound >= one) - one for one in batch)
        for bounds in itertools.combinations(values, min(number - 1, len(values)))
    )
    assert (upper[bucket] - batch).sum() == best


def test_heads_that_forbid_a_degree_keep_the_planner_from_it():
    few = dataclasses.replace(COST, degrees=(1, 2, 4))
    made = enumerate_and_fill(lengths(1, 12), 8, few)
    assert made is not None and max(group.degree for group in made.groups) <= 4
