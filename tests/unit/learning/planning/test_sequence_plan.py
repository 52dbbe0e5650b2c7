"""Sequence plans: groups of different degree in one step."""

import dataclasses
import itertools

import numpy as np
import pytest

from learning.planning.sequence_fill import enumerate_and_fill, homogeneous, partitions
from learning.planning.sequence_milp import buckets, mixed_integer
from learning.planning.sequence_plan import ClusterCost, MicroBatch, cut, legal_degrees, plan, total
from schemas.failure import PlanError

COST = ClusterCost(
    quadratic=5e-6, linear=0.18, fixed=600.0, exchanged=2.0, bandwidth=((2, 119.0), (4, 104.0), (8, 96.0)),
    token=4.5, states=2000.0, memory=28_672.0, degrees=(1, 2, 4, 8),
)  # fmt: skip

WIDE = dataclasses.replace(COST, degrees=(1, 2, 4, 8, 16), bandwidth=(*COST.bandwidth, (16, 10.0)))
"""Two nodes: a group over both is slow."""


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
    answer, made = mixed_integer(batch, 8, COST, number=8, seconds=20.0), enumerate_and_fill(batch, 8, COST)
    assert answer.proven and answer.batch is not None and made is not None
    check(answer.batch, batch, 8)
    assert answer.batch.milliseconds - 1e-3 <= made.milliseconds <= 1.04 * answer.batch.milliseconds


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


def test_the_programme_says_when_its_time_was_too_short_for_a_proof():
    assert not mixed_integer(lengths(5, 40, total=45_000), 8, COST, number=40, seconds=0.05).proven


@pytest.mark.parametrize("case", range(3))
def test_leaving_partitions_out_by_their_bound_loses_nothing(case: int):
    batch = lengths(case, 40, total=70_000)
    made = enumerate_and_fill(batch, 16, WIDE)
    assert made is not None
    assert made.milliseconds == pytest.approx(min(filled_by_hand(batch, shape, WIDE) for shape in all_shapes(16)))


def all_shapes(ranks: int) -> list[tuple[int, ...]]:
    return [shape for shape in partitions(ranks, (1, 2, 4, 8, 16)) if len(shape) <= 40]


def filled_by_hand(batch: np.ndarray, shape: tuple[int, ...], cost: ClusterCost) -> float:
    """One partition, longest sequence first to the group where it ends first: the planner's rule in plain loops."""
    ends, room = [cost.fixed] * len(shape), [cost.capacity(degree) for degree in shape]
    for length in sorted(batch, reverse=True):
        fits = [place for place in range(len(shape)) if room[place] >= length]
        if not fits:
            return np.inf
        added = {place: float(cost.milliseconds([length], shape[place])[0]) for place in fits}
        best = min(fits, key=lambda place: ends[place] + added[place])
        ends[best] += added[best]
        room[best] -= length
    return np.inf if min(ends) == cost.fixed else max(ends)


@pytest.mark.parametrize("case", range(5))
def test_a_batch_beyond_memory_is_cut_into_micro_batches_that_hold_every_sequence_once(case: int):
    batch = lengths(case, 200, total=200_000)
    made = plan(batch.tolist(), 8, COST)
    assert len(made) >= -(-batch.sum() // (8 * COST.capacity(1)))
    assert sorted(index for one in made for group in one.groups for index in group.sequences) == list(range(200))
    for one in made:
        assert sum(group.degree for group in one.groups) == 8
        spans = []
        for group in one.groups:
            assert group.sequences and group.first % group.degree == 0
            assert batch[list(group.sequences)].sum() <= COST.capacity(group.degree)
            spans.append(COST.fixed + COST.milliseconds(batch[list(group.sequences)], group.degree).sum())
        assert max(spans) == pytest.approx(one.milliseconds)


@pytest.mark.parametrize("case", range(10))
@pytest.mark.parametrize("effort", [0.0, 16.0])
def test_a_plan_is_never_slower_than_even_cuts_with_the_best_single_degree_in_each(case: int, effort: float):
    batch = np.minimum(lengths(case, 60, total=120_000), 40_000)
    made = total(plan(batch.tolist(), 8, COST, effort))
    for number in range(1, 12):
        same = [homogeneous(batch[piece], 8, COST) for piece in cut(batch, number)]
        if None not in same:
            assert made <= sum(one.milliseconds for one in same if one is not None) + 1e-6


@pytest.mark.parametrize("case", range(3))
def test_cutting_where_it_is_quickest_beats_cutting_into_even_tokens(case: int):
    batch = np.minimum(lengths(case, 100, total=160_000), 60_000)
    batch[0] = 50_000
    even = []
    for number in range(4, 9):
        made = [enumerate_and_fill(batch[piece], 16, WIDE) for piece in cut(batch, number)]
        even.append(sum(np.inf if one is None else one.milliseconds for one in made))
    assert total(plan(batch.tolist(), 16, WIDE)) < 0.985 * min(even)


def test_the_same_lengths_give_the_same_plan():
    batch = lengths(9, 150, total=150_000).tolist()
    assert plan(batch, 8, COST) == plan(batch, 8, COST)


def test_fewer_sequences_than_the_heads_need_groups_are_refused():
    few = dataclasses.replace(COST, degrees=(1, 2))
    with pytest.raises(PlanError, match="3 sequences cannot be laid on 8 ranks"):
        plan([10, 10, 10], 8, few)


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
