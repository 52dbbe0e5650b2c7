"""The memory model: what a training takes, from the sizes of a model alone."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.planning.memory import (
    EIGHT_BIT,
    DeltaBlocks,
    MemoryRecipe,
    Network,
    Stack,
    checkpointable,
    generator_bytes,
    holds_copies,
    piece_memory,
    predict,
    recomputed,
    with_fewest,
)
from learning.planning.step_rules import SampleLengths, ScreenSpan
from schemas.config.policy import PolicyConfig
from schemas.config.training import TrainConfig

GIB = 2**30
LANGUAGE = Stack(28, 233_057_792, 1_441_792, 3584, 18_944, 3584, 512)
VISION = Stack(32, 19_738_500, 0, 1280, 3420, 1280, 1280, fused=True)
SEVEN = Network(LANGUAGE, VISION, 1_134_916_608, 44_918_000, 544_997_376, 152_064, 4)
"""About Qwen2.5-VL-7B."""
PLAIN = MemoryRecipe(ranks=8, tokens=16_384, targets=2_048, patches=65_536)


@pytest.mark.parametrize(
    ("change", "ranks", "gib"),
    [
        ({}, 1, 123.6), ({}, 8, 15.4), ({"rank": 16, "frozen": 2}, 1, 15.4 + 0.6),
        ({"rank": 16, "frozen": 4}, 1, 30.9 + 0.6),
    ],
)  # fmt: skip
def test_what_lasts_from_step_to_step_is_16_bytes_a_trained_weight_and_2_or_4_a_frozen_one(
    change: dict[str, int], ranks: int, gib: float
) -> None:
    parts = predict(SEVEN, replace(PLAIN, ranks=ranks, **change)).parts
    lasting = sum(parts[name] for name in ("weights", "frozen weights", "gradients", "moments"))
    assert lasting / GIB == pytest.approx(gib, rel=0.01)


def test_the_parts_add_up_to_the_peak_and_the_moment_is_named() -> None:
    found = predict(SEVEN, PLAIN)
    assert found.peak == sum(found.parts.values()) and found.moment == "a block's backward pass"


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": 16}, {"tokens": 8_192}, {"checkpointing": True}, {"freeze_vision": True, "frozen": 2},
        {"rank": 16}, {"rank": 16, "frozen": 2}, {"offload": True}, {"patches": 0},
    ],
)  # fmt: skip
def test_every_knob_that_saves_memory_lowers_the_peak(change: dict[str, int]) -> None:
    assert predict(SEVEN, replace(PLAIN, **change)).peak < predict(SEVEN, PLAIN).peak


def test_chunks_bound_the_logits_however_many_targets_there_are() -> None:
    many = replace(PLAIN, targets=200_000, checkpointing=True)
    whole, chunked = predict(SEVEN, many), predict(SEVEN, replace(many, logits_chunk=512))
    assert whole.moment == "logits" and whole.parts["logits"] == 12 * 152_064 * 200_000
    assert chunked.peak < whole.peak / 4
    assert chunked == predict(SEVEN, replace(many, logits_chunk=512, targets=2_000_000))


def test_what_is_offloaded_lies_in_the_machines_memory() -> None:
    there = predict(SEVEN, replace(PLAIN, offload=True))
    assert there.host / GIB == pytest.approx(15.4, rel=0.01) and predict(SEVEN, PLAIN).host == 0
    assert there.parts["weights"] == there.parts["moments"] == 0


def test_a_critic_that_stands_alone_doubles_what_lasts() -> None:
    one, two = (predict(SEVEN, replace(PLAIN, networks=networks)).parts for networks in (1, 2))
    assert two["weights"] == pytest.approx(2 * one["weights"], abs=1) and two["activations"] == one["activations"]


def test_moments_in_8_bits_take_two_bytes_of_a_weight_and_their_scales() -> None:
    full, eight = (predict(SEVEN, replace(PLAIN, moment=moment)).parts for moment in (4, EIGHT_BIT))
    assert eight["moments"] / full["moments"] == pytest.approx(1 / 4 * (1 + 1 / 64))
    assert {name: size for name, size in full.items() if name not in ("moments", "overhead")} == {
        name: size for name, size in eight.items() if name not in ("moments", "overhead")
    }


def test_adapters_of_short_rows_keep_half_of_their_moments_in_fp32() -> None:
    full, short, long = (
        predict(SEVEN, replace(PLAIN, rank=rank, moment=moment)).parts["moments"]
        for rank, moment in ((8, 4), (8, EIGHT_BIT), (16, EIGHT_BIT))
    )
    assert short / full == pytest.approx((1 + 1 / 64 + 4) / 8) and long / full == pytest.approx((1 + 1 / 64 + 1.25) / 8)


def test_4_bits_hold_the_language_models_blocks_and_bf16_everything_else() -> None:
    half, four = (predict(SEVEN, replace(PLAIN, rank=16, frozen=2, four_bits=four, ranks=1)) for four in (False, True))
    blocks = LANGUAGE.blocks * LANGUAGE.weights
    assert half.parts["frozen weights"] - four.parts["frozen weights"] == pytest.approx((2 - 0.5625) * blocks, abs=1)
    assert four.parts["frozen weights"] / GIB == pytest.approx(6.7, abs=0.1)
    assert four.peak < half.peak


def test_each_block_whose_activations_are_computed_twice_lowers_the_memory_kept() -> None:
    kept = [
        predict(SEVEN, replace(PLAIN, checkpointing=number, cuda=False)).parts["activations"] for number in range(2, 61)
    ]
    assert kept == sorted(kept, reverse=True) and len(set(kept)) == len(kept)
    assert kept[-1] == predict(SEVEN, replace(PLAIN, checkpointing=True, cuda=False)).parts["activations"]
    assert predict(SEVEN, replace(PLAIN, checkpointing=0)) == predict(SEVEN, PLAIN)


def test_the_fewest_blocks_are_computed_twice_with_which_a_training_fits() -> None:
    room = predict(SEVEN, replace(PLAIN, checkpointing=40)).peak
    assert with_fewest(SEVEN, PLAIN, room).checkpointing == 40
    assert with_fewest(SEVEN, PLAIN, room - 2**20).checkpointing == 41
    assert with_fewest(SEVEN, replace(PLAIN, checkpointing=50), room).checkpointing == 50
    assert with_fewest(SEVEN, PLAIN, predict(SEVEN, PLAIN).peak).checkpointing == 0
    assert with_fewest(SEVEN, PLAIN, 2**30).checkpointing is True


def test_the_towers_blocks_are_counted_first_and_a_frozen_towers_not() -> None:
    assert checkpointable(SEVEN, PLAIN) == (32, 28)
    assert recomputed(SEVEN, replace(PLAIN, checkpointing=40)) == (32, 8)
    frozen = replace(PLAIN, checkpointing=20, freeze_vision=True, frozen=2)
    assert checkpointable(SEVEN, frozen) == (0, 28) and recomputed(SEVEN, frozen) == (0, 20)
    assert recomputed(SEVEN, replace(PLAIN, checkpointing=True)) == (32, 28)


def test_blocks_with_a_deltanet_are_computed_twice_before_those_with_attention() -> None:
    delta = DeltaBlocks(21, 220_000_000, 0, heads=32, key=128, value=128, convolved=8_192)
    mixed, frozen = replace(SEVEN, language=replace(LANGUAGE, delta=delta)), {"freeze_vision": True, "frozen": 2}
    kept = [
        predict(mixed, replace(PLAIN, checkpointing=number, cuda=False, **frozen)).parts["activations"]
        for number in (1, 2, 21, 22, 23)
    ]
    saved = LANGUAGE.saved(2) - 2 * LANGUAGE.width, mixed.language.saved_by_delta(2) - 2 * LANGUAGE.width
    assert kept[0] - kept[1] == pytest.approx(PLAIN.tokens * saved[1], abs=2)
    assert kept[3] - kept[4] == pytest.approx(PLAIN.tokens * saved[0], abs=2)


def test_one_gpu_with_room_keeps_a_copy_of_its_weights_and_gathers_nothing() -> None:
    one = replace(PLAIN, ranks=1, moment=EIGHT_BIT)
    assert holds_copies(SEVEN, one, 192 * GIB) and not holds_copies(SEVEN, one, 80 * GIB)
    assert not holds_copies(SEVEN, replace(one, offload=True), 192 * GIB)
    assert not holds_copies(SEVEN, replace(one, ranks=2), 192 * GIB)
    assert not holds_copies(SEVEN, replace(one, rank=16, frozen=4), 192 * GIB)  # frozen weights would be copied too
    assert holds_copies(SEVEN, replace(one, rank=16, frozen=2), 80 * GIB)
    parts, gathering = (predict(SEVEN, replace(one, copies=copies)).parts for copies in (True, False))
    assert parts["copies"] == 2 * SEVEN.weights and gathering["copies"] == parts["gathered"] == 0


def test_a_model_that_rolls_out_on_the_same_gpu_takes_its_weights_and_caches() -> None:
    streams = TrainConfig.model_validate({"method": "grpo", "stream": {"on": True}})
    policy = PolicyConfig(prefix_mb=1000, seen_screens_mb=500)
    taken = generator_bytes(SEVEN, policy, streams)
    assert taken == 2 * SEVEN.weights + 2_500_000_000 + 1.5 * GIB
    assert not generator_bytes(SEVEN, policy, TrainConfig(method="grpo"))
    for elsewhere in ({"server": {"url": "http://localhost:1"}}, {"device": "cpu"}, {"precision": "int8"}):
        assert not generator_bytes(SEVEN, PolicyConfig(**elsewhere), streams)  # type: ignore[arg-type]
    one = replace(PLAIN, ranks=1, moment=EIGHT_BIT)
    beside = predict(SEVEN, replace(one, generator=taken))
    assert beside.parts["generator"] == taken and beside.peak - predict(SEVEN, one).peak >= taken
    room = piece_memory(SEVEN, one, 192 * GIB).room - piece_memory(SEVEN, replace(one, generator=taken), 192 * GIB).room
    assert taken <= room <= 1.06 * taken
    offloaded = predict(SEVEN, replace(one, generator=taken, offload=True))
    assert offloaded.parts["generator"] == taken and offloaded.host == predict(SEVEN, replace(one, offload=True)).host
    near = next(size for size in range(80, 192) if holds_copies(SEVEN, one, size * GIB))
    assert not holds_copies(SEVEN, replace(one, generator=taken), near * GIB)


RECIPES = [{}, {"checkpointing": True}, {"checkpointing": 40}, {"logits_chunk": 512}, {"ranks": 1, "moment": EIGHT_BIT}]


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(RECIPES), st.integers(1, 20_000), st.floats(0, 1), st.floats(0.01, 1), st.booleans(),
    st.sampled_from([0.0, 1.0, 8.0]),
)  # fmt: skip
def test_a_micro_batch_that_fits_by_its_parts_fits_by_the_prediction(
    change: dict[str, int], tokens: int, shown: float, answered: float, copies: bool, shared: float
) -> None:
    recipe = replace(PLAIN, **change, copies=copies)
    patches, targets, copied = int(shown * tokens) * 4, int(answered * tokens), int(shared * tokens)
    memory = piece_memory(SEVEN, recipe, 192 * GIB, shares=bool(shared))
    counted = memory.of(SampleLengths(tokens, (ScreenSpan(0, patches // 4, patches),), targets))
    counted += memory.copied * copied
    peak = predict(SEVEN, replace(recipe, tokens=tokens, patches=patches, targets=targets, copied=copied)).peak
    assert peak <= 192 * GIB - memory.room + counted + 2**20
    if recipe.logits_chunk and tokens > 10_000:
        assert 192 * GIB - memory.room + counted < 1.1 * peak
