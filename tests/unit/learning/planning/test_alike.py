"""Plans of samples that begin alike: together on a rank, under its limit, and on all ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.engines.fsdp.costs import CPU, Shape, cluster_cost
from learning.planning import step_plan
from learning.planning.balance import BalanceCost, Ints, loads
from learning.planning.sequence_plan import Group
from learning.planning.shared_prompts import LEAST, share
from learning.planning.step_plan import (
    MicroBatch,
    check_plan,
    encoded,
    fragments,
    plan_step,
)
from learning.planning.step_rules import PieceMemory, Rules, SampleLengths, ScreenSpan

LINEAR = BalanceCost(100, 1)
SCREENS = (4, 20, 40, 64)
"""Tokens of each picture."""
TEXTS = (1, LEAST - 1, LEAST, 60)
"""Tokens of a text in a prompt."""


def alike(name: str, replies: Sequence[int], opening: int = 300, screen: int = 200) -> list[SampleLengths]:
    """Samples with one prompt, which shows a screen, and replies of so many tokens."""
    shown = ScreenSpan(10, screen, 4 * screen, name)
    return [SampleLengths(opening + one, (shown,), one, opening, name) for one in replies]


def apart(items: Sequence[SampleLengths]) -> list[SampleLengths]:
    """The samples without anything to share."""
    return [replace(one, begins="", screens=tuple(replace(each, name=None) for each in one.screens)) for one in items]


def parts(plan: Sequence[MicroBatch]) -> list[list[tuple[int, ...]]]:
    return [[group.sequences for group in batch.groups] for batch in plan]


def mixed(groups: int, size: int) -> list[SampleLengths]:
    """Groups of samples that begin alike, one of each group after the other."""
    items = [alike(f"{number}", [20 + number] * size) for number in range(groups)]
    return [one for each in zip(*items, strict=True) for one in each]


def test_a_group_that_begins_alike_is_one_micro_batch_under_a_cap_where_separate_samples_are_several() -> None:
    items = alike("a", [20] * 8)
    rules = Rules(1, LINEAR, LINEAR, cap=500)
    assert parts(plan_step(items, rules)) == [[tuple(range(8))]]
    assert len(plan_step(apart(items), rules)) == 8


REAL = PieceMemory(114_957_679_738, 8_576_871, 1_139_343, 1_914_394, 146_228)
"""A GPU of 140 GiB with a Qwen3-VL of the library's default sizes."""
COSTS = BalanceCost(30_000, 1), BalanceCost(100_000, 1)


def pairs(count: int, name: str = "p") -> list[SampleLengths]:
    return [one for number in range(count) for one in alike(f"{name}{number}", [50, 50], 3000, 1200)]


def test_hundreds_of_samples_are_planned_in_few_tries_where_memory_is_tight(monkeypatch: pytest.MonkeyPatch) -> None:
    tries, fit = [0], step_plan._fit

    def counted(*given: Any) -> Any:
        tries[0] += 1
        return fit(*given)

    monkeypatch.setattr(step_plan, "_fit", counted)
    items = pairs(256)
    for ranks in (8, 64):
        check_plan(plan_step(items, Rules(ranks, *COSTS, memory=REAL)), items, ranks, (1,))
    assert tries[0] < 60


@pytest.mark.parametrize("share", [0.9, 0.995])
def test_one_sample_that_nearly_fills_a_gpu_leaves_the_others_together(share: float) -> None:
    assert REAL.room is not None
    big = SampleLengths(int(share * REAL.room) // REAL.token - 50, (), 50)
    plan = plan_step([big, *pairs(31)], Rules(8, *COSTS, memory=REAL))
    assert len(plan) <= 12


def test_groups_are_not_mixed_where_each_fills_a_micro_batch() -> None:
    plan = plan_step(mixed(3, 5), Rules(1, LINEAR, LINEAR, cap=500))
    assert sorted(parts(plan)) == [[tuple(range(number, 15, 3))] for number in range(3)]


def test_a_group_beyond_the_cap_is_cut_into_equal_parts_that_each_share() -> None:
    plan = plan_step(alike("a", [100] * 9), Rules(1, LINEAR, LINEAR, cap=700))
    assert sorted(len(members) for (members,) in parts(plan)) == [3, 3, 3]


@pytest.mark.parametrize(("ranks", "wanted"), [(1, [10]), (2, [5, 5]), (4, [2, 2, 3, 3])])
def test_groups_are_cut_so_that_every_rank_has_a_part_of_one_of_them(ranks: int, wanted: list[int]) -> None:
    items = [one for name in "ab" for one in alike(name, [900] * 5)]
    (groups,) = parts(plan_step(items, Rules(ranks, LINEAR, LINEAR)))
    assert sorted(map(len, groups)) == wanted
    assert ranks == 1 or all(len({items[one].begins for one in group}) == 1 for group in groups)


def test_openings_that_differ_or_are_too_short_to_be_shared_count_for_each_sample() -> None:
    rules = Rules(1, LINEAR, LINEAR, cap=8 * LEAST)
    short = alike("a", [LEAST] * 8, opening=LEAST - 1, screen=4)
    assert len(plan_step(short, rules)) == 2 == len(plan_step(apart(short), rules))
    shared = alike("a", [LEAST] * 7, opening=LEAST, screen=4)
    assert len(plan_step(shared, rules)) == 1
    assert len(plan_step([replace(one, begins=f"{at}") for at, one in enumerate(shared)], rules)) == 2


def test_without_balancing_samples_keep_their_turns() -> None:
    items = mixed(3, 4)
    rules = Rules(2, LINEAR, LINEAR, level=False, cap=800)
    assert plan_step(items, rules) == [
        replace(batch, encoders=mine.encoders)
        for batch, mine in zip(plan_step(apart(items), rules), plan_step(items, rules), strict=True)
    ]


def test_a_rank_encodes_a_screen_of_several_samples_once_and_a_group_of_ranks_each_of_them() -> None:
    items = mixed(2, 3)
    alone = (Group(1, 0, (0, 1, 2)), Group(1, 1, (3, 4, 5)))
    assert encoded(alone, items) == [(0, 0), (1, 0), (3, 0), (4, 0)]
    assert encoded((Group(2, 0, (0, 1, 2)),), items) == [(0, 0), (1, 0), (2, 0)]
    assert encoded(alone, apart(items)) == [(sample, 0) for sample in range(6)]
    pieces = fragments(MicroBatch(alone, (1, 1, 0, 0)), items)
    assert pieces.after.tolist() == [0, 0, 1, 1] and pieces.sizes.tolist() == [200] * 4


def test_memory_counts_a_shared_screen_once_and_the_copies_of_keys() -> None:
    items = alike("a", [20] * 4)
    memory = PieceMemory(0, 10, 1, 5, 1)
    once, copies = 10 * (300 + 80) + 800 + 5 * 80, 300 + 4 * 320
    rules = [Rules(1, LINEAR, LINEAR, memory=replace(memory, room=once + copies - less)) for less in (0, 1)]
    assert [len(plan_step(items, one)) for one in rules] == [1, 2]


@pytest.mark.parametrize(("target", "copied", "wanted"), [(0, 0, 65), (4_000, 0, 13), (0, 10, 36)])
def test_a_cap_of_tokens_bounds_the_targets_and_copies_of_samples_that_share(
    target: int, copied: int, wanted: int
) -> None:
    items = alike("a", [4] * 128)
    rules = Rules(1, LINEAR, LINEAR, cap=560, memory=PieceMemory(None, 1_000, 0, target, copied))
    assert len(plan_step(items, rules)) == -(-128 // wanted)


@pytest.mark.parametrize("common", [0, 300])
@pytest.mark.parametrize("copied", [0, 1, 2, 400])
def test_samples_whose_copies_have_no_room_are_alone(copied: int, common: int) -> None:
    items = [SampleLengths(301, (), 1, 300, "a")] * 4
    memory = PieceMemory(300 * 301, 300, 0, 0, copied)  # of one sample, and with one copied token of its opening
    rules = Rules(1, LINEAR, LINEAR, memory=memory, common=common)
    assert [len(members) for (members,) in parts(plan_step(items, rules))] == [1, 1, 1, 1]


def test_a_text_with_which_all_samples_begin_counts_once() -> None:
    items = [replace(one, begins=f"{at}") for at, one in enumerate(alike("", [100] * 6, opening=300))]
    rules = Rules(1, LINEAR, LINEAR, cap=700)
    assert len(plan_step(items, rules)) == 6 and len(plan_step(items, replace(rules, common=200))) == 3


def test_samples_that_begin_alike_are_on_single_ranks_if_that_is_faster_than_sequence_plans() -> None:
    shape = Shape(LINEAR, BalanceCost(10**6, 1), query_heads=4, key_heads=4, exchanged=64)
    cluster = cluster_cost(shape, 4, 4, 400, CPU)
    rules = Rules(4, shape.vision, shape.language, cap=400, cluster=cluster)
    items = mixed(4, 4)
    assert len(plan_step(apart(items), rules)) > 1
    assert sorted(parts(plan_step(items, rules))[0]) == [tuple(range(number, 16, 4)) for number in range(4)]
    longer = [*items, SampleLengths(900, (), 10, 890, "longer")]
    assert any(group.degree > 1 for batch in plan_step(longer, rules) for group in batch.groups)


def laid_out(draw: np.random.Generator) -> tuple[list[Ints], list[SampleLengths]]:
    """Samples whose prompts are branches of a tree of texts and screens, as numbers of tokens and as lengths."""
    stems: list[list[int]] = [[]]  # a screen is a negative number
    for _ in range(draw.integers(2, 8)):
        more = [-1 - int(draw.integers(len(SCREENS))) if draw.random() < 0.4 else int(draw.choice(TEXTS)) for _ in "ab"]
        stems.append([*stems[draw.integers(len(stems))], *more])
    tokens, items = list[Ints](), list[SampleLengths]()
    for _ in range(draw.integers(1, 16)):
        stem, reply = stems[draw.integers(len(stems))], int(draw.choice([1, 2, 40, 90]))
        ids, screens = list[int](), list[ScreenSpan]()
        for one in stem:
            if one < 0:
                size = SCREENS[-1 - one]
                screens.append(ScreenSpan(len(ids), size, 4 * size, one))
            ids += [one] * (SCREENS[-1 - one] if one < 0 else one)
        opening = len(ids)
        ids += draw.integers(0, 3, reply).tolist()
        tokens.append(np.array(ids, dtype=np.int64))
        items.append(SampleLengths(len(ids), tuple(screens), reply, opening, f"{ids[:opening]}"))
    return tokens, items


def begun(tokens: Sequence[Ints], items: Sequence[SampleLengths]) -> int:
    """Counts the tokens before screens with which all samples begin."""
    end = min(min([item.opening, *(one.start for one in item.screens)]) for item in items)
    same = next((at for at in range(end) if len({int(one[at]) for one in tokens}) > 1), end)
    return same if same >= LEAST else 0


@dataclass
class Computed:
    """What a rank computes."""

    tokens: int
    copied: int
    """Tokens whose keys and values it copies."""
    bytes: int


def computed(
    batch: MicroBatch, tokens: Sequence[Ints], items: Sequence[SampleLengths], memory: PieceMemory
) -> list[Computed]:
    shown = [items[sample].screens[number] for sample, number in encoded(batch.groups, items)]
    encoders = np.array(batch.encoders, dtype=np.int64)
    seen, found = loads([one.patches for one in shown], encoders, len(batch.groups)), list[Computed]()
    for group in batch.groups:
        members = sorted(group.sequences)
        segments = share([tokens[one] for one in members], [items[one].opening for one in members])
        held = sum(one.end - one.start for one in segments)
        copied = sum(one.end for one in segments) if any(one.before for one in segments) else 0
        targets = sum(items[one].targets for one in members)
        used = memory.token * held + memory.copied * copied + memory.target * targets
        found.append(Computed(held, copied, used + memory.patch * int(seen[group.first])))
    return found


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 3, 4]), st.booleans(), st.sampled_from([1.0, 1.1, 2.0, 3.0]))
def test_what_ranks_compute_never_exceeds_the_cap_and_needs_no_more_micro_batches(
    seed: int, ranks: int, level: bool, larger: float
) -> None:
    tokens, items = laid_out(np.random.default_rng(seed))
    cap, memory = int(larger * max(one.tokens for one in items)), PieceMemory(None, 400, 0, 70, 4)
    rules = Rules(ranks, LINEAR, LINEAR, level, cap, common=begun(tokens, items))
    plan, bounded = plan_step(items, rules), plan_step(items, replace(rules, memory=memory))
    check_plan(plan, items, ranks, (1,))
    check_plan(bounded, items, ranks, (1,))
    most = cap * max(-(-memory.of(one) // one.tokens) for one in items)
    for batch in [*plan, *bounded]:
        assert all(one.tokens <= cap for one in computed(batch, tokens, items, memory))
    assert all(one.bytes <= most for batch in bounded for one in computed(batch, tokens, items, memory))
    assert len(plan) <= len(plan_step(apart(items), replace(rules, common=0)))


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 2**32), st.sampled_from([1, 2, 3, 4]), st.sampled_from([0, 4, 40]), st.sampled_from([1.0, 1.1, 3])
)
def test_what_ranks_compute_never_exceeds_the_memory(seed: int, ranks: int, copied: int, larger: float) -> None:
    tokens, items = laid_out(np.random.default_rng(seed))
    memory = PieceMemory(0, 400, 25, 70, copied)
    room = int(larger * max(map(memory.of, items)))
    rules = Rules(ranks, LINEAR, LINEAR, memory=replace(memory, room=room), common=begun(tokens, items))
    plan = plan_step(items, rules)
    check_plan(plan, items, ranks, (1,))
    assert all(one.bytes <= room for batch in plan for one in computed(batch, tokens, items, memory))
