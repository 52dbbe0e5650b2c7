"""Plans of a step: every sample and screen once, rows where their tokens are, no rank over the cap."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from learning.engines.fsdp.costs import CPU, Shape, check_fit, cluster_cost
from learning.planning.balance import BalanceCost
from learning.planning.sequence_plan import Group
from learning.planning.step_plan import (
    MicroBatch,
    check_plan,
    digest,
    edges_of,
    fragments,
    plan_step,
    stretch_of,
)
from learning.planning.step_rules import PieceMemory, Rules, SampleLengths, ScreenSpan
from schemas.failure import PlanError
from tests.fixtures.sentences import Sentences

LINEAR = BalanceCost(100, 1)
SHAPE = Shape(LINEAR, LINEAR, query_heads=4, key_heads=4, exchanged=64)


def item(tokens: int, *screens: int) -> SampleLengths:
    """A sample with screens of so many tokens, spread over it."""
    pieces, start = [], 1
    for size in screens:
        pieces.append(ScreenSpan(start, size, 4 * size))
        start += size + 2
    return SampleLengths(max(tokens, start + 3), tuple(pieces))


ITEMS = st.lists(
    st.builds(lambda text, sizes: item(text, *sizes), st.integers(4, 60), st.lists(st.integers(1, 9), max_size=3)),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(ITEMS, st.sampled_from([1, 2, 3, 4]), st.booleans(), st.sampled_from([None, 70, 120]))
def test_every_sample_is_planned_once_and_under_the_cap(
    items: list[SampleLengths], ranks: int, level: bool, cap: int | None
):
    plan = plan_step(items, Rules(ranks, LINEAR, LINEAR, level, cap))
    check_plan(plan, items, ranks, (1,))
    for batch in plan:
        assert len(batch.encoders) == sum(len(items[sample].screens) for sample in batch.samples)
        for group in batch.groups:
            assert cap is None or sum(items[sample].tokens for sample in group.sequences) <= cap


@settings(deadline=None, max_examples=30)
@given(ITEMS, st.sampled_from([2, 4]), st.sampled_from([40, 60, 100]))
def test_sequence_plans_keep_every_rank_under_the_cap(items: list[SampleLengths], ranks: int, cap: int):
    assume(max(one.tokens for one in items) <= cap * ranks)
    cluster = cluster_cost(SHAPE, ranks, ranks, cap, CPU)
    plan = plan_step(items, Rules(ranks, LINEAR, LINEAR, True, cap, cluster))
    check_plan(plan, items, ranks, cluster.degrees)
    assert all(stretch_of(group, items) <= cap for batch in plan for group in batch.groups)


@settings(deadline=None)
@given(ITEMS, st.sampled_from([(4,), (2, 2), (2, 1, 1), (1, 1, 1, 1)]), st.integers(0, 99))
def test_what_a_screen_becomes_arrives_where_its_tokens_are(
    items: list[SampleLengths], shape: tuple[int, ...], seed: int
):
    draw = np.random.default_rng(seed)
    batch = random_batch(items, shape, draw)
    pieces = fragments(batch, items)
    screens = [(sample, piece) for sample in batch.samples for piece in items[sample].screens]
    assert pieces.sizes.sum() == sum(piece.tokens for _, piece in screens)
    for rank in range(4):
        encoded = sum(piece.tokens for (_, piece), by in zip(screens, batch.encoders, strict=True) if by == rank)
        assert pieces.sizes[pieces.before == rank].sum() == encoded
    for group in batch.groups:
        edges, stretch = edges_of(group, items), stretch_of(group, items)
        marked = np.zeros(edges[-1], dtype=bool)
        for sample, start in zip(sorted(group.sequences), edges, strict=False):
            for piece in items[sample].screens:
                marked[start + piece.start : start + piece.start + piece.tokens] = True
        for number in range(group.degree):
            held = int(marked[number * stretch : (number + 1) * stretch].sum())
            assert pieces.sizes[pieces.after == group.first + number].sum() == held


def random_batch(items: list[SampleLengths], shape: tuple[int, ...], draw: np.random.Generator) -> MicroBatch:
    """Samples and screens anywhere, on groups of these degrees."""
    owner = draw.integers(0, len(shape), len(items))
    groups, first = [], 0
    for number, degree in enumerate(shape):
        members = tuple(int(sample) for sample in np.flatnonzero(owner == number))
        groups.append(Group(degree, first, members))
        first += degree
    count = sum(len(one.screens) for one in items)
    return MicroBatch(tuple(groups), tuple(int(rank) for rank in draw.integers(0, first, count)))


def test_vision_and_language_are_levelled_each_for_itself():
    items = [item(400), item(100, 60), item(100, 60), item(400)]
    (batch,) = plan_step(items, Rules(2, LINEAR, LINEAR))
    assert sorted(batch.encoders) == [0, 1]
    assert all(sum(items[sample].tokens for sample in group.sequences) == 500 for group in batch.groups)


def test_with_several_nodes_samples_move_to_where_their_screens_are_encoded():
    items = [item(40 + 3 * index, 8) for index in range(16)]
    far, near = (plan_step(items, Rules(4, LINEAR, LINEAR, per_node=node))[0] for node in (None, 2))

    def leaving(batch: MicroBatch) -> int:
        pieces = fragments(batch, items)
        return int(pieces.sizes[pieces.before // 2 != pieces.after // 2].sum())

    check_plan([near], items, 4, (1,))
    assert leaving(near) <= leaving(far)
    assert sorted(len(group.sequences) for group in near.groups) == sorted(len(group.sequences) for group in far.groups)


def test_micro_batches_of_one_rank_have_equal_work_of_both_phases():
    items = [item(300), item(300), item(20, 40), item(20, 40), item(300), item(20, 40)]
    rules = Rules(1, BalanceCost(400, 4), LINEAR, cap=660)
    work = [sum(int(rules.costs(items)[one]) for one in batch.samples) for batch in plan_step(items, rules)]
    assert len(work) == 2 and max(work) < 1.2 * min(work)
    seen, read = int(rules.vision.of(160)), int(rules.language.of(items[2].tokens))
    assert rules.costs(items)[2] == seen + read and Rules(2, rules.vision, LINEAR).costs(items)[2] == read


@settings(deadline=None)
@given(ITEMS, st.sampled_from([1, 2, 3]), st.booleans(), st.sampled_from([1.0, 1.5, 4.0]))
def test_micro_batches_fill_the_memory_with_tokens_patches_and_targets(
    items: list[SampleLengths], ranks: int, level: bool, larger: float
):
    memory = PieceMemory(0, 40, 25, 70)
    items = [SampleLengths(one.tokens, one.screens, 1 + one.tokens % 5) for one in items]
    memory = PieceMemory(int(larger * max(map(memory.of, items))), memory.token, memory.patch, memory.target)
    plan = plan_step(items, Rules(ranks, LINEAR, LINEAR, level, memory=memory))
    check_plan(plan, items, ranks, (1,))
    for batch in plan if level else ():
        screens = [screen.patches for sample in batch.samples for screen in items[sample].screens]
        for group in batch.groups:
            held = sum(memory.of(items[one]) - memory.patch * items[one].patches for one in group.sequences)
            seen = sum(size for size, rank in zip(screens, batch.encoders, strict=True) if rank == group.first)
            assert held + memory.patch * seen <= memory.room
    if ranks == 1 and level and len(plan) > 1:  # no micro-batch would do for all of them
        assert sum(map(memory.of, items)) > memory.room


def test_text_leaves_room_for_more_text_than_screens():
    memory = PieceMemory(108 * 2**20, 2**20, 2**18, 0)
    texts, screens = [item(50)] * 4, [item(50, 48)] * 4
    assert [len(plan_step(items, Rules(1, LINEAR, LINEAR, memory=memory))) for items in (texts, screens)] == [2, 4]


def test_a_sample_beyond_the_memory_is_named_with_its_size(sentence: Sentences):
    memory = PieceMemory(2**30, 2**22, 2**20, 0)
    with sentence.raises(PlanError, "sample 1 takes 1.95 GiB", hint="train.activation_checkpointing"):
        plan_step([item(20), item(500)], Rules(2, LINEAR, LINEAR, memory=memory))


def test_a_sample_beyond_the_cap_is_an_error_before_the_step():
    with pytest.raises(PlanError, match="sample 1 has 500 tokens"):
        plan_step([item(20), item(500)], Rules(2, LINEAR, LINEAR, cap=100))


def test_a_sample_that_the_heads_do_not_let_enough_ranks_share_is_named_with_the_degrees(sentence: Sentences):
    shape = Shape(LINEAR, LINEAR, query_heads=6, key_heads=2, exchanged=64)
    cost = cluster_cost(shape, 4, 4, 100, CPU)
    check_fit(200, 7, cost, 100)
    with sentence.raises(PlanError, hint="policy.history_images"):
        check_fit(201, 7, cost, 100)
    with pytest.raises(PlanError, match="token_cap"):
        check_fit(201, 7, None, 100)


def test_a_group_that_the_heads_forbid_is_refused():
    items = [item(20), item(20)]
    with pytest.raises(PlanError, match="groups of 1, 2"):
        check_plan([MicroBatch((Group(4, 0, (0, 1)),), ())], items, 4, (1, 2))
    with pytest.raises(PlanError, match="once"):
        check_plan([MicroBatch((Group(2, 0, (0,)), Group(2, 2, ())), ())], items, 4, (1, 2))


def test_plans_that_differ_have_different_digests():
    items = [item(20 + index) for index in range(6)]
    one, other = (plan_step(items, Rules(2, LINEAR, LINEAR, level)) for level in (True, False))
    assert digest(one) == digest(plan_step(items, Rules(2, LINEAR, LINEAR))) != digest(other)
