"""Every rank reads its own shard; what is in place afterwards is what the library's own reading gives."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from learning.engines.fsdp.adapters import is_adapter, unadapted
from learning.engines.fsdp.engine import FsdpEngine
from learning.engines.fsdp.loading import empty_model, model_of_config
from learning.engines.fsdp.model import load_model
from learning.engines.fsdp.shards import whole
from models.random_vlm import KINDS
from schemas.config.training import LoraConfig
from schemas.failure import CheckpointError
from tests.fixtures.sentences import Sentences
from tests.unit.learning.chats import job

LORA = LoraConfig(rank=4, alpha=16.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lora", [LoraConfig(), LORA])
def test_weights_and_buffers_are_those_that_the_library_reads(kind: str, lora: LoraConfig, tmp_path: Path) -> None:
    plan = job(tmp_path, kind, lora=lora)
    engine, read = FsdpEngine(plan, 0, 1), load_model(plan.parent)
    held = {unadapted(name): whole(one) for name, one in engine._model.named_parameters() if not is_adapter(name)}
    assert held.keys() == dict(read.named_parameters()).keys()
    for name, weight in read.named_parameters():
        assert torch.equal(held[name], weight.float()), name
    buffers = dict(engine._model.named_buffers())
    assert buffers.keys() == dict(read.named_buffers()).keys()
    for name, one in read.named_buffers():
        assert torch.equal(buffers[name], one) and buffers[name].dtype == one.dtype, name
    drawn = {name: whole(one).detach() for name, one in engine._model.named_parameters() if is_adapter(name)}
    assert bool(drawn) == (lora.rank > 0)
    for name, one in drawn.items():
        assert bool((one == 0).all()) if ".lora_B." in name else 0 < one.abs().max().item() < 1, name
    engine.close()


def test_tied_weights_stay_one_weight(tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText

    plan = job(tmp_path, "qwen3_vl")
    tied = AutoModelForImageTextToText.from_pretrained(plan.parent)
    tied.config.tie_word_embeddings = tied.config.text_config.tie_word_embeddings = True
    tied.tie_weights()
    tied.save_pretrained(plan.parent)
    engine = FsdpEngine(plan, 0, 1)
    head, table = engine._model.get_output_embeddings().weight, engine._model.get_input_embeddings().weight
    assert head is table and torch.equal(whole(head).bfloat16(), tied.get_input_embeddings().weight)
    engine.close()


def test_a_weight_that_no_file_has_is_named(tmp_path: Path) -> None:
    plan = job(tmp_path, "qwen3_vl")
    (file,) = plan.parent.glob("*.safetensors")
    tensors = load_file(file)
    gone = next(name for name in tensors if name.endswith("layers.1.mlp.up_proj.weight"))
    save_file({name: one for name, one in tensors.items() if name != gone}, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.up_proj\.weight"):
        FsdpEngine(plan, 0, 1)


def test_a_weight_that_is_stored_turned_is_read_whole_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    plan = job(tmp_path, "qwen3_vl_moe")
    (file,) = plan.parent.glob("*.safetensors")
    tensors = load_file(file)
    turned = {name: one.transpose(1, 2).contiguous() if "experts." in name else one for name, one in tensors.items()}
    assert any(turned[name].shape != tensors[name].shape for name in tensors)
    save_file(turned, file, metadata={"format": "pt"})
    engine, read = FsdpEngine(plan, 0, 1), dict(load_model(plan.parent).named_parameters())
    assert all(torch.equal(whole(one), read[name].float()) for name, one in engine._model.named_parameters())
    sentence(capsys.readouterr().out)
    engine.close()


def test_a_model_without_numbers_takes_no_memory(tmp_path: Path) -> None:
    made = empty_model(job(tmp_path, "qwen2_5_vl").parent)
    assert all(one.is_meta for one in made.parameters()) and not any(one.is_meta for one in made.buffers())


def test_layers_of_a_kind_that_the_trainer_does_not_run_are_refused_by_name(tmp_path: Path) -> None:
    from transformers import Qwen2_5_VLConfig

    text = {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": 8, "num_hidden_layers": 2}
    Qwen2_5_VLConfig(text_config=text).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="sliding_attention"):
        model_of_config(tmp_path)
