"""Any model directory through `transformers`, in batches: a chat's reply is its own, whoever shares the batch."""

from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedModel

from models.random_vlm import KINDS, build_random
from models.serving import local
from models.vlm import VlmPolicy
from tests.unit.models.test_vlm import CONFIG, TEXTS, context

CONTEXTS = [context(number, (96 + 16 * number, 64)) for number in range(5)]
"""Screens of several sizes, after no, one and two turns."""


def policy(directory: Path, **keys: Any) -> VlmPolicy:
    """Computes in fp32, where a batch and one chat round alike."""
    made = VlmPolicy(directory, CONFIG.model_copy(update={"backend": "transformers", **keys}))
    made.model.model.float()  # type: ignore[attr-defined]
    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_chat_s_reply_is_the_same_alone_and_in_a_batch(kind: Any, tmp_path: Path) -> None:
    build_random(kind, TEXTS, 0, tmp_path / kind)
    model = policy(tmp_path / kind, family="thousandths")
    for temperature in (0.0, 1.0):
        together = model.act(CONTEXTS, temperature)
        alone = [model.act([one], temperature)[0] for one in CONTEXTS]
        assert [one.token_ids for one in together] == [one.token_ids for one in alone]
        for one, other in zip(together, alone, strict=True):
            assert len(one.logprobs) == len(one.token_ids) > 0
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert len({one.token_ids for one in together}) > 1


def test_a_reply_that_ends_before_the_others_of_its_batch_ends_with_its_end_token(tmp_path: Path) -> None:
    build_random("qwen3_vl", TEXTS, 0, tmp_path / "model")
    model = policy(tmp_path / "model")
    whole = model.act(CONTEXTS, 1.0)
    end = whole[2].token_ids[1]
    model.model.batch.ends = frozenset([end])  # type: ignore[attr-defined]
    model.model.model.generation_config.eos_token_id = end  # type: ignore[attr-defined]
    for one, before in zip(model.act(CONTEXTS, 1.0), whole, strict=True):
        place = before.token_ids.index(end) + 1 if end in before.token_ids else len(before.token_ids)
        assert one.token_ids == before.token_ids[:place] and one.cut == (end not in before.token_ids)
        assert one.logprobs == pytest.approx(before.logprobs[:place], abs=1e-5)


def test_a_batch_is_as_large_as_the_config_says(tmp_path: Path) -> None:
    build_random("qwen3_vl", TEXTS, 0, tmp_path / "model")
    model, sizes = policy(tmp_path / "model", batch=2), []
    vision: Any = model.model.model.base_model.language_model  # type: ignore[attr-defined]
    vision.register_forward_pre_hook(lambda _, __, given: sizes.append(len(given["inputs_embeds"])), with_kwargs=True)
    model.act(CONTEXTS)
    assert set(sizes) == {1, 2}


def test_a_gpu_without_a_flash_kernel_or_a_compiler_is_reported_in_a_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build_random("qwen3_vl", TEXTS, 0, tmp_path / "model")
    monkeypatch.setattr(local, "device_of", lambda _: "cuda")
    monkeypatch.setattr(PreTrainedModel, "to", lambda model, *_: model)
    found = {"find_kernel": "The GPU has no flash kernel.", "find_compiler": "torch.compile does not work."}
    for name, line in found.items():
        monkeypatch.setattr(local, name, lambda _, line=line: line)
    capsys.readouterr()
    local.TransformersModel(tmp_path / "model")
    assert [one for one in capsys.readouterr().err.splitlines() if one.startswith("flywheel")] == [
        f"flywheel: {line}" for line in found.values()
    ]


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_vl"])
def test_a_screen_that_an_earlier_step_showed_is_not_encoded_again(kind: Any, tmp_path: Path) -> None:
    build_random(kind, TEXTS, 0, tmp_path / kind)
    remembers, forgets = policy(tmp_path / kind), policy(tmp_path / kind, seen_screens_mb=0)
    encoded: list[int] = []
    tower: Any = remembers.model.model.base_model.visual  # type: ignore[attr-defined]
    tower.register_forward_pre_hook(lambda _, __, given: encoded.append(len(given["grid_thw"])), with_kwargs=True)
    for one in (CONTEXTS[:2], CONTEXTS[:3], CONTEXTS):
        for made, other in zip(remembers.act(one, 1.0), forgets.act(one, 1.0), strict=True):
            assert made.token_ids == other.token_ids
            assert made.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    shown = [one.observation for one in CONTEXTS] + [turn.observation for one in CONTEXTS for turn in one.turns]
    assert sum(encoded) == len({one.png for one in shown})


def test_what_is_kept_of_screens_stays_within_its_bound(tmp_path: Path) -> None:
    build_random("qwen3_vl", TEXTS, 0, tmp_path / "model")
    model = policy(tmp_path / "model", seen_screens_mb=1)
    seen: Any = model.model.prefill._seen  # type: ignore[attr-defined]
    seen._most = 3000
    for one in CONTEXTS:
        model.act([one])
        held = sum(layer.numel() * layer.element_size() for layers in seen._kept.values() for layer in layers)
        assert held == seen._held <= 3000
