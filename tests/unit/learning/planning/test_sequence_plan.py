"""Sequence plans: groups of different degree in one step."""

import dataclasses
import itertools
import tracemalloc

import numpy as np
import pytest

from learning.planning.balance import BalanceCost
from learning.planning.sequence_mix import homogeneous, mixture
from learning.planning.sequence_pack import buckets, mixed_integer
from learning.planning.sequence_plan import ClusterCost, GroupedMicroBatch, cut, legal_degrees, plan, total
from learning.planning.step_plan import check_plan, plan_of
from learning.planning.step_rules import Rules, SampleLengths
from schemas.failure import PlanError
from tests.fixtures.sentences import Sentences

COST = ClusterCost(
    quadratic=5e-6, linear=0.18, fixed=600.0, exchanged=2.0, bandwidth=((2, 119.0), (4, 104.0), (8, 96.0)),
    token=4.5, states=2000.0, memory=28_672.0, degrees=(1, 2, 4, 8),
)  # fmt: skip

RULES = Rules(8, BalanceCost(1), BalanceCost(1))

WIDE = dataclasses.replace(COST, degrees=(1, 2, 4, 8, 16), bandwidth=(*COST.bandwidth, (16, 10.0)))
"""Two nodes: a group over both is slow."""


def lengths(case: int, count: int, total: int = 40_000) -> np.ndarray:
    """Lengths with a long tail that together fit on the eight ranks at once."""
    shape = np.exp(np.random.default_rng(case).normal(0.0, 1.3, count))
    return (shape / shape.sum() * total).astype(int) + 1


def check(made: list[GroupedMicroBatch], batch: np.ndarray, ranks: int, cost: ClusterCost = COST) -> None:
    """What the executor asks of a plan, memory, and that the times it names are its own."""
    items = [SampleLengths(int(tokens), ()) for tokens in batch]
    check_plan(plan_of([one.groups for one in made], items, RULES), items, ranks, cost.degrees)
    for one in made:
        for group in one.groups:
            assert batch[list(group.sequences)].sum() <= cost.capacity(group.degree)
        assert span_of(one, batch, cost) == pytest.approx(one.milliseconds)


def span_of(made: GroupedMicroBatch, batch: np.ndarray, cost: ClusterCost) -> float:
    """When the last group ends."""
    work = [cost.milliseconds(batch[list(group.sequences)], group.degree).sum() for group in made.groups]
    return cost.fixed + float(max(work))


@pytest.mark.parametrize("case", range(40))
def test_a_mixture_holds_every_sequence_once_and_fits(case: int):
    batch = lengths(case, 8 + case % 20)
    made = mixture(batch, 8, COST)
    assert made is not None
    check([made], batch, 8)


@pytest.mark.parametrize("case", range(40))
def test_a_mixture_is_never_worse_than_one_degree_for_all(case: int):
    batch = lengths(case, 8 + case % 20)
    mixed, same = mixture(batch, 8, COST), homogeneous(batch, 8, COST)
    assert mixed is not None and same is not None
    assert mixed.milliseconds <= same.milliseconds + 1e-9


@pytest.mark.parametrize("case", range(4))
def test_the_programme_of_the_paper_finds_feasible_plans_near_the_default_planners(case: int):
    batch = lengths(case, 8)
    answer, made = mixed_integer(batch, 8, COST, number=8, seconds=20.0), mixture(batch, 8, COST)
    assert answer.proven and answer.batch is not None and made is not None
    check([answer.batch], batch, 8)
    assert answer.batch.milliseconds - 1e-3 <= made.milliseconds <= 1.04 * answer.batch.milliseconds


def test_degrees_divide_the_query_heads_and_divide_or_repeat_the_key_heads():
    assert legal_degrees(8, query_heads=28, key_heads=4) == (1, 2, 4)
    assert legal_degrees(16, query_heads=32, key_heads=4) == (1, 2, 4, 8, 16)
    assert legal_degrees(8, query_heads=8, key_heads=6) == (1, 2)
    with pytest.raises(PlanError, match="6 ranks"):
        legal_degrees(6, 4, 4)


def test_a_sequence_that_fits_on_no_group_is_refused_with_its_length(sentence: Sentences):
    with sentence.raises(PlanError, hint="policy.history_images"):
        plan([900_000, 10], 8, COST)


def test_a_length_below_0_is_refused_by_number():
    with pytest.raises(PlanError, match="a sequence of -1 tokens"):
        plan([-1], 4, COST)


def packed_at_one_degree(batch: np.ndarray, ranks: int, cost: ClusterCost, degree: int, share: float) -> float:
    """Best-fit decreasing into groups of one degree, groups of like time in a micro-batch, in plain loops."""
    if batch.max() > cost.capacity(degree):
        return np.inf
    groups: list[list[int]] = []
    for length in sorted(batch.tolist(), reverse=True):
        full = max(int(share * cost.capacity(degree)), int(batch.max()))
        fits = [group for group in groups if sum(group) + length <= full]
        if fits:
            max(fits, key=sum).append(length)
        else:
            groups.append([length])
    spans = sorted((cost.fixed + float(cost.milliseconds(group, degree).sum()) for group in groups), reverse=True)
    return sum(spans[:: ranks // degree])


@pytest.mark.parametrize("work", [0, None])
@pytest.mark.parametrize(
    "batch",
    [
        [60] * 8 + [40] * 8,
        [60, 60, 40, 40],
        [*range(5, 100, 5)] * 3,
        [*range(5, 195, 9)] * 2,
        [*range(4, 400, 13)],
        [399, 1, 1, 1, 170, 170, 30, 30, 101],
    ],
    ids=str,
)
def test_a_plan_is_never_slower_than_best_fit_packing_at_any_one_degree(batch: list[int], work: int | None):
    made, found = plan(batch, 4, TIGHT, work), np.array(batch)
    check(made, found, 4, TIGHT)
    for degree, share in itertools.product(TIGHT.degrees, (1.0,) if work == 0 else (1.0, 0.9, 0.7, 0.5)):
        assert total(made) <= packed_at_one_degree(found, 4, TIGHT, degree, share) + 1e-6


def first_fit_at_one_degree(batch: np.ndarray, ranks: int, cost: ClusterCost, degree: int) -> float:
    """Milliseconds, the longest first into the first micro-batch with room, there to the group with the least time."""
    room, made = cost.capacity(degree), list[list[list[int]]]()
    if batch.max() > room or degree > ranks:
        return np.inf

    def work(group: list[int]) -> float:
        return float(cost.milliseconds(np.array(group, dtype=int), degree).sum())

    for length in sorted(batch.tolist(), reverse=True):
        fits = ([group for group in one if sum(group) + length <= room] for one in made)
        groups = next((one for one in fits if one), None)
        if groups is None:
            made.append([[] for _ in range(ranks // degree)])
            groups = made[-1]
        min(groups, key=work).append(length)
    return sum(cost.fixed + max(map(work, one)) for one in made)


@pytest.mark.parametrize("case", range(60))
def test_a_plan_of_few_sequences_is_never_slower_than_first_fit_at_any_one_degree(case: int):
    dice = np.random.default_rng(case)
    ranks = int(dice.choice([1, 2, 4, 8]))
    cost = dataclasses.replace(COST, degrees=tuple(degree for degree in COST.degrees if degree <= ranks))
    batch = dice.integers(100, min(6_000, cost.capacity(ranks)), dice.integers(3, 25))
    made = plan(batch.tolist(), ranks, cost)
    check(made, batch, ranks, cost)
    for degree in cost.degrees:
        assert total(made) <= first_fit_at_one_degree(batch, ranks, cost, degree) * (1 + 1e-9)


def evened_at_one_degree(batch: np.ndarray, ranks: int, cost: ClusterCost, degree: int) -> float:
    """Milliseconds, the longest first to the group with the least time that has room, over as few micro-batches as
    best fit needs or up to two more."""
    room, width = cost.capacity(degree), ranks // degree
    if batch.max() > room or degree > ranks:
        return np.inf
    times = cost.milliseconds(np.sort(batch)[::-1], degree)
    packed = list[int]()
    for length in sorted(batch.tolist(), reverse=True):
        fits = [number for number, held in enumerate(packed) if held + length <= room]
        if fits:
            packed[max(fits, key=lambda number: packed[number])] += length
        else:
            packed.append(length)
    best = np.inf
    for more in range(3):
        number = (-(-len(packed) // width) + more) * width
        held, work = np.zeros(number), np.zeros(number)
        for length, took in zip(sorted(batch.tolist(), reverse=True), times, strict=True):
            free = np.flatnonzero(held + length <= room)
            if not len(free):
                break
            place = free[work[free].argmin()]
            held[place] += length
            work[place] += took
        else:
            ends = np.sort(work)[::-1][::width]
            best = min(best, float((cost.fixed + ends[ends > 0]).sum()))
    return best


@pytest.mark.parametrize("case", range(60))
def test_a_plan_is_never_slower_than_one_degree_whose_groups_are_evened_out(case: int):
    dice = np.random.default_rng(case)
    ranks = int(dice.choice([2, 4, 8]))
    degrees = tuple(degree for degree in ((1,), (2,), (1, 2), (2, 4))[case % 4] if degree <= ranks)
    cost = ClusterCost(1e-6, 5e-3, 150.0, 0.0, (), 2.0, 30_000, 80_000, degrees)
    batch = dice.integers(500, 15_000, dice.integers(6, 25) if case % 5 else 200)
    made = plan(batch.tolist(), ranks, cost)
    check(made, batch, ranks, cost)
    for degree in degrees:
        assert total(made) <= evened_at_one_degree(batch, ranks, cost, degree) * (1 + 1e-9)


def test_long_and_short_sequences_share_memory_where_that_saves_a_micro_batch():
    single = dataclasses.replace(TIGHT, degrees=(1,))
    made = plan([60, 60, 40, 40], 1, single)
    check(made, np.array([60, 60, 40, 40]), 1, single)
    assert [[group.sequences for group in one.groups] for one in made] == [[(1, 3)], [(0, 2)]]


def test_the_programme_says_when_its_time_was_too_short_for_a_proof():
    assert not mixed_integer(lengths(5, 40, total=45_000), 8, COST, number=40, seconds=0.05).proven


@pytest.mark.parametrize("case", range(6))
def test_no_partition_of_sixteen_ranks_filled_longest_first_is_quicker_than_the_mixture_that_is_found(case: int):
    batch = lengths(case, 10 + 6 * case, total=70_000)
    made = mixture(batch, 16, WIDE)
    assert made is not None
    best = min(filled_by_hand(batch, shape, WIDE) for shape in partitions(16, (16, 8, 4, 2, 1)))
    assert made.milliseconds <= best + 1e-6


def partitions(ranks: int, degrees: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every way to write the ranks as a sum of the degrees."""
    if ranks == 0:
        return [()]
    allowed = [(degree, degrees[place:]) for place, degree in enumerate(degrees) if degree <= ranks]
    return [(degree, *rest) for degree, smaller in allowed for rest in partitions(ranks - degree, smaller)]


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
    return max(ends)


TIGHT = dataclasses.replace(COST, degrees=(1, 2, 4), memory=2_000.0 + 4.5 * 100)
"""A hundred tokens a rank."""


@pytest.mark.parametrize("case", range(60))
def test_a_batch_has_a_plan_exactly_if_each_of_its_sequences_fits_on_a_group(case: int, sentence: Sentences):
    draw = np.random.default_rng(case)
    batch = draw.integers(1, 440 if case % 2 else 400, size=draw.integers(1, 7))
    if batch.max() > TIGHT.capacity(4):
        with sentence.raises(PlanError, batch.max(), hint="policy.history_images"):
            plan(batch.tolist(), 4, TIGHT)
    else:
        check(plan(batch.tolist(), 4, TIGHT), batch, 4, TIGHT)


def quickest_by_hand(batch: np.ndarray, ranks: int, cost: ClusterCost) -> float:
    """The least time of one micro-batch: every partition, every assignment; infinite if none fits."""
    best = np.inf
    for shape in partitions(ranks, cost.degrees[::-1]):
        for owner in itertools.product(range(len(shape)), repeat=len(batch)):
            held = [batch[np.array(owner) == place] for place in range(len(shape))]
            if all(part.sum() <= cost.capacity(degree) for part, degree in zip(held, shape, strict=True)):
                ends = [cost.milliseconds(part, degree).sum() for part, degree in zip(held, shape, strict=True)]
                best = min(best, cost.fixed + float(max(ends)))
    return best


@pytest.mark.parametrize("case", range(20))
def test_a_mixture_is_found_where_any_assignment_fits_and_is_near_the_quickest_of_all(case: int):
    draw = np.random.default_rng(case)
    batch = draw.integers(1, 150, size=4)
    least, made = quickest_by_hand(batch, 4, TIGHT), mixture(batch, 4, TIGHT)
    assert (made is None) == (least == np.inf)
    if made is not None:
        assert least - 1e-6 <= made.milliseconds <= 1.03 * least


@pytest.mark.parametrize("case", range(5))
def test_a_batch_beyond_memory_is_cut_into_micro_batches_that_hold_every_sequence_once(case: int):
    batch = lengths(case, 200, total=200_000)
    made = plan(batch.tolist(), 8, COST)
    assert len(made) >= -(-batch.sum() // (8 * COST.capacity(1)))
    check(made, batch, 8)


@pytest.mark.parametrize("case", range(10))
@pytest.mark.parametrize("work", [0, None])
def test_a_plan_is_never_slower_than_even_cuts_with_the_best_single_degree_in_each(case: int, work: int | None):
    batch = np.minimum(lengths(case, 60, total=120_000), 40_000)
    made = total(plan(batch.tolist(), 8, COST, work))
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
        made = [mixture(batch[piece], 16, WIDE) for piece in cut(batch, number)]
        even.append(sum(np.inf if one is None else one.milliseconds for one in made))
    assert total(plan(batch.tolist(), 16, WIDE)) < 0.985 * min(even)


def test_the_same_lengths_give_the_same_plan():
    batch = lengths(9, 150, total=150_000).tolist()
    assert plan(batch, 8, COST) == plan(batch, 8, COST)


def test_fewer_sequences_than_the_heads_need_groups_leave_groups_empty():
    few = dataclasses.replace(COST, degrees=(1, 2))
    made = plan([10, 10, 10], 8, few)
    assert len(made) == 1 and sum(not group.sequences for group in made[0].groups) >= 1
    check(made, np.array([10, 10, 10]), 8, few)


def test_ranks_without_heads_for_single_ranks_are_still_all_in_a_group():
    pairs = dataclasses.replace(COST, degrees=(2, 4))
    check(plan([10, 500, 9_000], 8, pairs), np.array([10, 500, 9_000]), 8, pairs)


def test_a_thousand_ranks_are_planned_without_listing_their_partitions():
    degrees = tuple(1 << power for power in range(8))
    large = dataclasses.replace(WIDE, degrees=degrees, bandwidth=(*WIDE.bandwidth, (32, 6.0), (64, 5.0), (128, 4.0)))
    batch = lengths(3, 1_024, total=4_000_000)
    tracemalloc.start()
    made = plan(batch.tolist(), 1_024, large, 100_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 * 2**20
    check(made, batch, 1_024, large)
    same = homogeneous(batch, 1_024, large)
    assert same is not None and total(made) <= same.milliseconds


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
    made = mixture(lengths(1, 12), 8, few)
    assert made is not None and max(group.degree for group in made.groups) <= 4
