"""Quantised inference: close to full precision, for the small policy's fast path and for any model directory."""

from pathlib import Path

import pytest
import torch
from torch import nn

from models.random_vlm import KINDS, build_random
from models.serving.local import TransformersModel
from models.tiny.build import build_tiny
from models.tiny.generator import Int8Net, TinyModel
from models.tiny.network import TinyNet
from models.vlm import VlmPolicy
from schemas.failure import UsageError
from tests.unit.models.test_vlm import CONFIG, TEXTS, WINDOWS, context

INT8 = CONFIG.model_copy(update={"precision": "int8"})


@pytest.fixture(scope="module", params=[CONFIG, WINDOWS], ids=["whole screen", "windows"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("int8") / "tiny"
    build_tiny(request.param, TEXTS, 0, out)
    return out


def test_products_of_the_small_policy_are_rounded_and_close(directory: Path) -> None:
    full, rounded = TinyNet.load(directory, torch.float32), Int8Net.load(directory, torch.float32)
    ends = ("qkv.weight", "linear_fc1.weight", "gate_up.weight")
    names = [name.removesuffix(".weight") for name in full.leaves if name.endswith(ends)]
    assert len(names) >= 4
    torch.manual_seed(0)
    for name in names:
        x = torch.randn(5, full.leaves[f"{name}.weight"].shape[1])
        exact, near = full.product(x, name), rounded.product(x, name)
        error = float((near - exact).norm() / exact.norm())
        assert 0 < error < 0.02, f"{name}: {error}"


def test_the_small_policy_acts_in_int_8(directory: Path) -> None:
    policy = VlmPolicy(directory, INT8)
    assert isinstance(policy.model, TinyModel) and isinstance(policy.model.net, Int8Net)
    contexts = [context(number) for number in range(3)]
    full, rounded = VlmPolicy(directory, CONFIG).act(contexts), policy.act(contexts)
    for one, other in zip(full, rounded, strict=True):
        assert one.logprobs and other.logprobs
        assert other.logprobs[0] == pytest.approx(one.logprobs[0], abs=0.4)


@pytest.mark.parametrize("kind", KINDS)
def test_any_model_acts_in_int_8(kind: str, tmp_path: Path) -> None:
    build_random(kind, TEXTS, 0, tmp_path / kind)  # type: ignore[arg-type]
    asked = (config.model_copy(update={"family": "thousandths"}) for config in (CONFIG, INT8))
    full, rounded = (VlmPolicy(tmp_path / kind, config) for config in asked)
    assert isinstance(rounded.model, TransformersModel)
    assert not [module for module in rounded.model.model.modules() if type(module) is nn.Linear]
    (one,), (other,) = full.act([context(2)]), rounded.act([context(2)])
    assert one.logprobs and other.logprobs
    assert other.logprobs[0] == pytest.approx(one.logprobs[0], abs=0.4)


def test_a_device_that_cannot_be_is_refused(tmp_path: Path) -> None:
    build_random("qwen3_vl", TEXTS, 0, tmp_path / "model")
    with pytest.raises(UsageError, match=r"policy\.precision.*int8.*policy\.device"):
        VlmPolicy(tmp_path / "model", INT8.model_copy(update={"device": "cuda"}))
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="no GPU here"):
            VlmPolicy(tmp_path / "model", CONFIG.model_copy(update={"device": "cuda"}))
