"""Steps of trajectories whose prompts go on from earlier ones: what is said is what would be said without."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from models.policy import Context
from models.random_vlm import KINDS, build_random
from models.vlm import VlmPolicy
from schemas.observation import PastStep
from tests.tiers import NIGHTLY
from tests.unit.models.serving.test_local import policy
from tests.unit.models.test_vlm import TEXTS, screen

SIZES = ((96, 64), (128, 64), (96, 96))


def steps(number: int, count: int = 4, instruction: str = TEXTS[0]) -> list[Context]:
    """The contexts of a trajectory, whose screens differ by it, and in size from one to the next."""
    screens = [screen(3 * number + at, SIZES[(number + at) % 3]) for at in range(count)]
    turns = tuple(PastStep(f"Wait for {at}.", "wait()", one) for at, one in enumerate(screens))
    return [Context(instruction, turns[:at], screens[at], 10 * number + at) for at in range(count)]


def batches(count: int = 4) -> list[list[Context]]:
    """Three trajectories step by step, one of them twice and one a step behind: rows of different lengths."""
    first, second = steps(0, count), steps(1, count, TEXTS[9])
    again = [replace(one, seed=one.seed + 100) for one in first]
    return [[first[at], second[at], again[at], first[max(0, at - 1)]] for at in range(count)]


def whole(directory: Path, **keys: Any) -> VlmPolicy:
    """Computes all of every prompt, screens included."""
    return policy(directory, prefix_mb=0, seen_screens_mb=0, **keys)


def computed(model: VlmPolicy) -> list[int]:
    """How many tokens the language model is given from now on, call by call."""
    seen: list[int] = []
    language: Any = model.model.model.base_model.language_model  # type: ignore[attr-defined]
    language.register_forward_pre_hook(
        lambda _, __, given: seen.append(given["inputs_embeds"].shape[:2].numel()), with_kwargs=True
    )
    return seen


def assert_alike(one: VlmPolicy, other: VlmPolicy, contexts: list[Context], temperature: float) -> None:
    for made, wanted in zip(one.act(contexts, temperature), other.act(contexts, temperature), strict=True):
        assert made.token_ids == wanted.token_ids
        assert made.logprobs == pytest.approx(wanted.logprobs, abs=1e-5)


def keys_of(kind: str) -> dict[str, str]:
    """The family of a random model, whose template has no calls that would tell it."""
    return {"family": "thousandths"} if kind.startswith("qwen3_5") else {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS if NIGHTLY else ("qwen3_vl", "qwen3_5"))
def test_steps_that_go_on_from_earlier_prompts_say_what_whole_prompts_say(kind: Any, tmp_path: Path) -> None:
    build_random(kind, TEXTS, 0, tmp_path / kind)
    for images in (1, 2, 5):
        reuses, plain = (make(tmp_path / kind, history_images=images, **keys_of(kind)) for make in (policy, whole))
        ours, theirs = computed(reuses), computed(plain)
        for contexts in batches():
            for temperature in (0.0, 1.0):
                assert_alike(reuses, plain, contexts, temperature)
        assert sum(ours) < sum(theirs) / 2


@pytest.mark.parametrize("kind", ["qwen3_vl", "qwen3_5"])
def test_a_step_computes_only_what_comes_after_the_last_one_s_prompt(kind: Any, tmp_path: Path) -> None:
    build_random(kind, TEXTS, 0, tmp_path / "model")
    model, plain = (
        make(tmp_path / "model", **keys_of(kind), history_images=5, max_new_tokens=1) for make in (policy, whole)
    )
    ours, theirs = computed(model), computed(plain)
    first, second = steps(0)[:2]
    for one in (first, first, second):
        assert_alike(model, plain, [one], 0.0)
    prompt, _, longer = theirs
    assert ours == [prompt - 1, 1, 1, longer - prompt, 1]


@pytest.mark.parametrize("kind", ["qwen3_vl", "qwen3_5"])
def test_rows_of_a_batch_share_what_they_begin_with(kind: Any, tmp_path: Path) -> None:
    build_random(kind, TEXTS, 0, tmp_path / "model")
    model = policy(tmp_path / "model", **keys_of(kind), max_new_tokens=1)
    model.model.prefill._kept._most = 1  # type: ignore[attr-defined]
    ours = computed(model)
    first = steps(0)[0]
    model.act([replace(first, seed=seed) for seed in range(4)], 1.0)
    assert len(ours) == 2 and ours[1] == 4
    assert model.model.prefill._kept.held == 0  # type: ignore[attr-defined]


def test_a_picture_of_the_same_size_is_not_taken_for_another(tmp_path: Path) -> None:
    build_random("qwen2_5_vl", TEXTS, 0, tmp_path / "model")
    reuses, plain = policy(tmp_path / "model"), whole(tmp_path / "model")
    one = steps(0)[0]
    other = replace(one, observation=screen(7, SIZES[0]))
    for contexts in ([one], [other], [one, other]):
        assert_alike(reuses, plain, contexts, 0.0)


@pytest.mark.parametrize("kind", ["qwen3_vl", "qwen3_5"])
def test_what_is_kept_of_prompts_stays_within_its_bound(kind: Any, tmp_path: Path) -> None:
    build_random(kind, TEXTS, 0, tmp_path / "model")
    model, plain = policy(tmp_path / "model", **keys_of(kind)), whole(tmp_path / "model", **keys_of(kind))
    kept: Any = model.model.prefill._kept  # type: ignore[attr-defined]
    kept._most = 500_000
    for contexts in batches():
        assert_alike(model, plain, contexts, 1.0)
        tensors = [part for one in kept._kept.values() for part in one.held()]
        assert 0 < sum(part.untyped_storage().nbytes() for part in tensors) == kept.held <= 500_000


def test_new_weights_begin_with_nothing(tmp_path: Path) -> None:
    for seed in (0, 1):
        build_random("qwen3_vl", TEXTS, seed, tmp_path / str(seed))
    policy(tmp_path / "0").act(steps(0)[:2])
    new, plain = policy(tmp_path / "1"), whole(tmp_path / "1")
    assert_alike(new, plain, steps(0)[:2], 0.0)


def test_a_model_whose_cache_forgets_is_left_alone(tmp_path: Path) -> None:
    build_random("qwen2_5_vl", TEXTS, 0, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["text_config"] |= {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
    config["text_config"].pop("layer_types", None)
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    reuses, plain = (make(tmp_path / "model", history_images=2) for make in (policy, whole))
    for contexts in batches(2):
        assert_alike(reuses, plain, contexts, 1.0)
    assert len(reuses.model.prefill._kept) == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["qwen3_vl", "qwen3_5"])
def test_rows_of_a_batch_are_prefilled_together_and_equal_rows_only_once(kind: Any, tmp_path: Path) -> None:
    build_random(kind, TEXTS, 0, tmp_path / "model")
    model = policy(tmp_path / "model", **keys_of(kind))
    first, second = steps(0)[1], steps(1, instruction=TEXTS[9])[2]
    passes = computed(model)
    alike = [replace(first, seed=seed) for seed in range(3)]
    together = model.act([*alike, second], 1.0)
    assert sum(size > 4 for size in passes) == 2  # the second prompt waits for the beginning that it shares
    assert_alike(
        policy(tmp_path / "model", **keys_of(kind), prefix_mb=0),
        policy(tmp_path / "model", **keys_of(kind)),
        [*alike, second],
        1.0,
    )
    assert len({one.token_ids for one in together[:3]}) > 1


def test_heads_that_share_keys_say_what_the_library_says(tmp_path: Path) -> None:
    build_random("qwen2_5_vl", TEXTS, 0, tmp_path / "model", heads=4, kv_heads=2)
    assert_alike(whole(tmp_path / "model"), policy(tmp_path / "model"), batches()[2], 1.0)


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_5"])
def test_a_prompt_takes_the_place_of_a_row_that_has_ended(kind: Any, tmp_path: Path) -> None:
    build_random(kind, TEXTS, 0, tmp_path / "model")
    model = policy(tmp_path / "model", **keys_of(kind), batch=2)
    contexts = [replace(one, seed=seed) for seed, one in enumerate(steps(0) + steps(1))]
    replies = model.act(contexts, 1.0)
    ends = frozenset(one.token_ids[at % 3] for at, one in enumerate(replies))  # replies of one to three tokens
    one_by_one, model = (
        policy(tmp_path / "model", **keys_of(kind), batch=1),
        policy(tmp_path / "model", **keys_of(kind), batch=2),
    )
    for each in (one_by_one, model):
        each.model.batch.ends = ends  # type: ignore[attr-defined]
    passes = computed(model)
    made, alone = model.act(contexts, 1.0), one_by_one.act(contexts, 1.0)
    assert [one.token_ids for one in made] == [one.token_ids for one in alone]
    decoded = sum(len(one.token_ids) for one in made)
    assert passes.count(2) <= decoded / 2 + max(len(one.token_ids) for one in made)
