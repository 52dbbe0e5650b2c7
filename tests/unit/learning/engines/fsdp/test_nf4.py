"""Adapters beside weights of 4 bits: what is trained is what is written, and the numbers are those of bitsandbytes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from learning.data.sample import read_samples
from learning.engines.engine import SampleRef
from learning.engines.fsdp.adapters import is_adapter
from learning.engines.fsdp.engine import FsdpEngine
from learning.engines.fsdp.nf4 import Nf4Linear, is_packed, pack, shape_of, unpack
from learning.engines.fsdp.shards import whole
from learning.job import Job
from learning.learner import Learner
from learning.trainer import train
from schemas.config.training import LoraConfig, MemoryConfig, TrainConfig
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.learning.chats import job
from tests.unit.learning.engines.fsdp.test_memory_knobs import gradient

LORA, FOUR = LoraConfig(rank=4, alpha=16.0), MemoryConfig(frozen="nf4")
GOLDEN = "78887665679aa864457abb953347bdc952238ced941138deea31028efea30029"
"""Of `test_the_codes_are_those_of_bitsandbytes`, by `bitsandbytes.functional.quantize_4bit` 0.50.2."""


def test_the_codes_are_those_of_bitsandbytes() -> None:
    block = torch.sin(torch.arange(64.0) * 0.7) * torch.linspace(0.1, 2, 64)
    (row,) = pack(block[None])
    assert bytes(row[:32].tolist()).hex() == GOLDEN
    assert row[32:].view(torch.float32).item() == pytest.approx(1.8595187664031982, rel=1e-6)


def test_rows_are_packed_each_for_itself_and_read_back_within_half_a_step() -> None:
    numbers = torch.randn(6, 192, generator=torch.Generator().manual_seed(0))
    packed = pack(numbers)
    assert packed.shape == (6, 108) and shape_of(packed) == numbers.shape
    assert torch.equal(torch.cat([pack(numbers[:2]), pack(numbers[2:])]), packed)
    largest = numbers.view(-1, 64).abs().amax(1).repeat_interleave(64).view(6, 192)
    assert bool(((unpack(packed) - numbers).abs() <= largest * 0.152).all())
    assert torch.equal(unpack(pack(torch.zeros(1, 64))), torch.zeros(1, 64))
    assert pack(numbers[:0]).shape == (0, 108) and unpack(packed[:0]).shape == (0, 192)


def test_a_product_and_its_way_back_are_those_of_the_rounded_matrix() -> None:
    layer = torch.nn.Linear(128, 10)
    held, x = Nf4Linear(layer), torch.randn(3, 5, 128, requires_grad=True)
    made = held(x)
    made.square().sum().backward()
    (there,), x.grad = (x.grad,), None
    wanted = functional.linear(x, unpack(held.packed), layer.bias)
    wanted.square().sum().backward()
    assert torch.allclose(made, wanted, atol=1e-6) and torch.allclose(there, x.grad, atol=1e-4)  # type: ignore[arg-type]
    assert held.packed.nbytes == 128 * 10 * 0.5625 and held.packed.grad is None


def rounded(plan: Job, folder: Path) -> Job:
    """The same, from files whose weights are rounded to 4 bits already."""
    engine = FsdpEngine(plan, 0, 1)
    folder.mkdir()
    for path in plan.parent.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    stored = load_file(plan.parent / "model.safetensors")
    full: dict[str, Tensor] = {name.removeprefix("model."): whole(one) for name, one in engine.masters().items()}  # type: ignore[arg-type]
    engine.close()
    assert any(not torch.equal(stored[name].float(), full[name]) for name in stored)
    save_file({name: full[name].contiguous() for name in stored}, folder / "model.safetensors", {"format": "pt"})
    return plan.model_copy(update={"parent": folder})


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "off"), [("float32", 1e-3), ("bfloat16", 0.1)])
def test_adapters_get_the_gradient_that_they_get_beside_the_rounded_weights(
    precision: str, off: float, tmp_path: Path
) -> None:
    plan = job(tmp_path, "qwen3_vl", lora=LORA, memory=FOUR, precision=precision)
    beside = rounded(plan, tmp_path / "rounded")
    plain = beside.model_copy(update={"train": plan.train.model_copy(update={"memory": MemoryConfig()})})
    four, full = gradient(plan), gradient(plain)
    assert four.keys() == full.keys() and all(is_adapter(name) for name in four)
    assert all((four[name] - full[name]).norm() <= off * full[name].norm() for name in full)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_vl"])
def test_the_policy_is_the_rounded_weights_with_the_adapters_in_them(kind: Any, tmp_path: Path) -> None:
    plan = job(tmp_path, kind, lora=LORA, memory=FOUR)
    before = FsdpEngine(plan, 0, 1)
    held = {name: one.dtype for name, one in before._model.named_parameters() if not is_adapter(name)}
    packed = {name for name, dtype in held.items() if dtype == torch.uint8}
    assert {dtype for name, dtype in held.items() if name not in packed} == {torch.bfloat16}
    assert packed and all("language_model.layers" in name and name.endswith("packed") for name in packed)
    before.close()
    learner = Learner(plan, read_samples(plan.samples), 0, 1)
    for _ in range(3):
        learner.step(learner.prepare([SampleRef(at, at) for at in range(8)]), 1e-2)
    batch = learner.engine.ready(learner.prepare([SampleRef(at, at) for at in range(8)]))
    plan.out.mkdir()
    for path in plan.parent.iterdir():
        (plan.out / path.name).write_bytes(path.read_bytes())
    learner.write(plan.out)
    bare = plan.train.model_copy(update={"lora": LoraConfig(), "memory": MemoryConfig()})
    served = plan.model_copy(update={"parent": plan.out, "train": bare})
    other = Learner(served, read_samples(plan.samples), 0, 1)
    with torch.no_grad():
        said, again = (one.engine.forward(batch.pieces[0]).logprobs for one in (learner, other))
    assert torch.allclose(said, again, atol=0.05) and (said - again).abs().mean() < 0.005
    for one in (learner, other):
        one.close()


def test_a_training_that_is_killed_goes_on_bit_for_bit(tmp_path: Path) -> None:
    plan = job(tmp_path, "qwen3_vl", steps=5, checkpoint_every=3, lora=LORA, memory=FOUR, activation_checkpointing=True)
    train(plan)
    unbroken = (plan.out / "model.safetensors").read_bytes()
    plan.out.rename(tmp_path / "unbroken")
    train(plan)  # from the checkpoint of its third step
    assert (plan.out / "model.safetensors").read_bytes() == unbroken


def test_who_trains_what_adapters_made_beside_4_bits_is_warned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    plan = job(tmp_path, "qwen3_vl", lora=LORA, memory=FOUR)
    train(plan)
    assert "rounded to 4 bits again" not in capsys.readouterr().out
    FsdpEngine(plan.model_copy(update={"parent": plan.out}), 0, 1).close()
    (warning,) = [json.loads(line)["warning"] for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert str(plan.out) in warning
    sentence(warning)


def test_gated_deltanets_are_held_in_4_bits_but_for_their_convolutions(tmp_path: Path) -> None:
    plan = job(tmp_path, "qwen3_5", lora=LoraConfig(rank=4), memory=FOUR)
    engine = FsdpEngine(plan, 0, 1)
    mixer = engine._model.base_model.language_model.layers[0].linear_attn
    layers = ("in_proj_qkv", "in_proj_z", "out_proj")
    assert all(isinstance(getattr(mixer, name).base_layer, Nf4Linear) for name in layers)
    assert not is_packed(mixer.conv1d.weight)
    engine.close()
    train(plan)
    assert (plan.out / "model.safetensors").is_file()


def test_what_cannot_be_held_so_is_refused_by_name(tmp_path: Path, sentence: Sentences) -> None:
    for settings in ({}, {"freeze_vision": True}):
        with sentence.raises(ValueError, "memory.frozen", "lora.rank"):
            TrainConfig.model_validate({"memory": {"frozen": "nf4", **settings}})
    with pytest.raises(UsageError, match=r"train\.memory\.frozen=nf4.*experts"):
        FsdpEngine(job(tmp_path, "qwen3_vl_moe", lora=LoraConfig(rank=4, targets=("q_proj",)), memory=FOUR), 0, 1)
