"""The memory model: what a training takes, from the sizes of a model alone."""

from dataclasses import replace

import pytest

from learning.planning.memory import EIGHT_BIT, MemoryRecipe, Network, Stack, predict

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
