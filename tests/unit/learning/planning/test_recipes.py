"""Which knobs let a training fit, and what else would."""

from dataclasses import replace

import pytest

from learning.planning.balance import BalanceCost
from learning.planning.memory import predict
from learning.planning.recipes import Gpus, Speed, choose, instead_of_offloading, pace, read_gpus, suggestions
from schemas.failure import UsageError
from tests.unit.learning.planning.test_memory import LANGUAGE, PLAIN, SEVEN, VISION

ONE = Gpus(1, 1, 80)
SPEED = Speed(2.6e14, 100.0, 10.0, 1e-3)


@pytest.mark.parametrize(
    ("text", "nodes", "each", "size"), [("1x80", 1, 1, 80), ("8x80", 1, 8, 80), ("2x8x80", 2, 8, 80)]
)
def test_gpus_are_read_as_they_are_written(text: str, nodes: int, each: int, size: int) -> None:
    assert read_gpus(text) == Gpus(nodes, each, size) and str(read_gpus(text)) == text


@pytest.mark.parametrize("text", ["", "80", "8x", "0x80", "8x0", "8x80GB", "1x2x3x4", "-1x80", "8 x 80"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"--gpus.*8x80"):
        read_gpus(text)


def test_where_there_is_room_nothing_is_given_up() -> None:
    small = replace(SEVEN, language=replace(LANGUAGE, blocks=2), vision=replace(VISION, blocks=2))
    tried, fits = choose(small, Gpus(1, 8, 141), PLAIN)
    assert fits and tried.why == () and tried.recipe.tokens == 16_384


def test_what_costs_nothing_but_time_is_tried_before_the_machines_memory() -> None:
    eight, fits = choose(SEVEN, Gpus(1, 8, 80), PLAIN)
    assert fits and eight.recipe.checkpointing and not eight.recipe.offload
    one, fits = choose(SEVEN, ONE, PLAIN)
    assert fits and one.recipe.offload and "train.memory.offload=true" in dict(one.why)


def test_no_more_blocks_are_computed_twice_than_needed() -> None:
    tried, fits = choose(SEVEN, Gpus(1, 8, 141), PLAIN)
    number = tried.recipe.checkpointing
    assert fits and 1 < number < 60 and f"train.activation_checkpointing={number}" in dict(tried.why)
    assert tried.recipe.tokens == 16_384 and tried.prediction.peak <= Gpus(1, 8, 141).room
    assert predict(SEVEN, replace(tried.recipe, checkpointing=number - 1)).peak > Gpus(1, 8, 141).room
    at = {
        twice: pace(
            BalanceCost(6_500_000_000, 100_352), BalanceCost(630_000_000, 10_240), SEVEN, Gpus(1, 8, 141),
            replace(tried.recipe, checkpointing=twice), 0, SPEED,
        )
        for twice in (0, number, True)
    }  # fmt: skip
    assert at[True] < at[number] < at[0]


def test_one_gpu_with_room_is_planned_with_copies_of_its_weights() -> None:
    tried, fits = choose(SEVEN, Gpus(1, 1, 80), replace(PLAIN, rank=16, frozen=2))
    assert fits and tried.recipe.copies and tried.prediction.parts["copies"] == 2 * SEVEN.adapters


def test_what_does_not_fit_comes_with_what_would_make_it_fit() -> None:
    small, asked = Gpus(1, 1, 16), replace(PLAIN, rank=16, frozen=2)
    tried, fits = choose(SEVEN, small, asked)
    assert not fits and tried.prediction.peak > small.room
    more, four = suggestions(SEVEN, SEVEN, small, asked)
    assert more.change == "--gpus 2x16" and more.peak <= small.room
    assert four.change.startswith("train.memory.frozen=nf4") and four.peak <= small.room
    assert choose(SEVEN, read_gpus("2x16"), asked)[1]


def test_adapters_and_a_frozen_tower_are_suggested_beside_all_weights_and_not_beside_adapters() -> None:
    full, adapted = (suggestions(SEVEN, SEVEN, ONE, replace(PLAIN, rank=rank)) for rank in (0, 16))
    assert [one.change.partition(":")[0] for one in full] == [
        "--gpus 2x80",
        "--lora",
        "train.memory.freeze_vision=true",
    ]
    assert [one.change.partition(":")[0] for one in adapted] == ["--gpus 2x80", "train.memory.frozen=nf4"]


def test_4_bits_are_suggested_where_bf16_is_too_much_and_not_for_experts() -> None:
    small = Gpus(1, 1, 16)
    assert suggestions(SEVEN, SEVEN, small, PLAIN)[-1].change.startswith("--lora train.memory.frozen=nf4")
    experts = replace(SEVEN, language=replace(LANGUAGE, experts=8))
    assert not any("nf4" in one.change for one in suggestions(experts, experts, small, PLAIN))


def test_moments_in_8_bits_are_named_where_they_do_instead_of_the_machines_memory() -> None:
    few = Gpus(1, 2, 64)
    tried, fits = choose(SEVEN, few, PLAIN)
    assert fits and tried.recipe.offload
    (one,) = instead_of_offloading(SEVEN, few, PLAIN)
    assert one.change.startswith("train.memory.moments=8bit") and tried.prediction.peak < one.peak <= few.room
    assert instead_of_offloading(SEVEN, Gpus(1, 1, 16), PLAIN) == []


def test_the_given_cap_is_the_only_one_that_is_tried() -> None:
    tried, _ = choose(SEVEN, ONE, PLAIN, 2_000)
    assert tried.recipe.tokens == 2_000 and tried.recipe.patches == 8_000


def test_more_passes_and_slower_links_make_it_slower() -> None:
    language, vision = BalanceCost(6_500_000_000, 100_352), BalanceCost(630_000_000, 10_240)
    near = pace(language, vision, SEVEN, Gpus(1, 8, 80), PLAIN, 0, SPEED)
    assert pace(language, vision, SEVEN, Gpus(2, 4, 80), PLAIN, 0, SPEED) < near
    assert pace(language, vision, SEVEN, Gpus(1, 8, 80), PLAIN, 1, SPEED) < near
    assert pace(language, vision, SEVEN, Gpus(1, 8, 80), replace(PLAIN, checkpointing=True), 0, SPEED) < near
    assert pace(language, vision, SEVEN, Gpus(1, 8, 80), replace(PLAIN, rank=16), 0, SPEED) > near
