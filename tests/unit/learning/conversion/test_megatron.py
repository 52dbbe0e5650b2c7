"""Checkpoints of Megatron Core (`tests/golden/checkpoints/save_megatron.py`) give the same network, both ways."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3Config

from learning.conversion.convert import convert
from learning.conversion.opening import open_checkpoint
from learning.conversion.source import MASTER, WEIGHT
from schemas.failure import CheckpointError, UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.learning.conversion.networks import same, weights
from tests.unit.learning.conversion.trainers import GOLDEN, save_anew

RANKS = {"qwen2": 2, "qwen3": 4}
TOLERANCE = {"qwen2": 1e-5, "qwen3": 0.05}
"""Maximum difference of logits, of networks in fp32 and in bf16."""
SCRIPT = ("megatron-core==0.16.1", "save_megatron.py")


@pytest.fixture(params=RANKS)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


def parent_of(family: str, folder: Path) -> Path:
    """Writes the config of the saved network."""
    sizes: dict[str, Any] = {
        "vocab_size": 29,
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    if family == "qwen2":
        Qwen2Config(**sizes, num_hidden_layers=2, tie_word_embeddings=True, dtype="float32").save_pretrained(folder)
    else:
        Qwen3Config(**sizes, num_hidden_layers=1, head_dim=6, dtype="bfloat16").save_pretrained(folder)
    return folder


@pytest.fixture
def parent(family: str, tmp_path: Path) -> Path:
    return parent_of(family, tmp_path / "parent")


def check_logits(model: Path, expected: Path, tolerance: float) -> None:
    """Compares the logits of a Hugging Face directory with those that Megatron computed."""
    network = AutoModelForCausalLM.from_pretrained(model)
    with torch.no_grad():
        found = network(torch.arange(12)[None] % 29).logits.float()
    assert (found - load_file(expected)["logits"]).abs().max() < tolerance


def test_a_converted_network_gives_megatrons_logits(family: str, parent: Path, tmp_path: Path, sentence: Sentences):
    place = GOLDEN / f"megatron-{family}"
    source = open_checkpoint(place)
    assert (source.format, source.step, dict(source.layout)) == ("megatron", 3, {"tensor": 2, "pipeline": 1})
    made = convert(place, tmp_path / "hf", "hf", shards=2, parent=parent)
    sentence("\n".join(made.notes), "embedding.word_embeddings.weight", "29")
    check_logits(tmp_path / "hf", place / "logits.safetensors", TOLERANCE[family])


def test_sizes_of_megatrons_arguments_are_enough_for_the_mapping(family: str, parent: Path, tmp_path: Path):
    place = GOLDEN / f"megatron-{family}"
    convert(place, tmp_path / "one", "hf", parent=parent)
    convert(place, tmp_path / "other", "hf", family=family)
    assert same(weights(tmp_path / "one"), weights(tmp_path / "other"))


def test_a_network_comes_back_from_megatrons_names_bit_by_bit(family: str, parent: Path, tmp_path: Path):
    convert(GOLDEN / f"megatron-{family}", tmp_path / "hf", "hf", parent=parent)
    before = weights(tmp_path / "hf")
    dtype = torch.bfloat16 if family == "qwen3" else torch.float32  # norms are in fp32 in the saved network
    save_file({name: one.to(dtype) for name, one in before.items()}, tmp_path / "hf/model.safetensors")
    convert(tmp_path / "hf", tmp_path / "megatron", "megatron", shards=3)
    source = open_checkpoint(tmp_path / "megatron")
    stored = open_checkpoint(GOLDEN / f"megatron-{family}").of_kind(WEIGHT)
    assert source.of_kind(WEIGHT).keys() == stored.keys() and not source.notes
    convert(tmp_path / "megatron", tmp_path / "again", "hf", parent=parent)
    assert same(weights(tmp_path / "again"), weights(tmp_path / "hf"))


def test_master_weights_and_moments_get_the_same_names(tmp_path: Path):
    place = GOLDEN / "megatron-qwen3"
    convert(place, tmp_path / "dcp", "dcp", family="qwen3")
    source = open_checkpoint(tmp_path / "dcp")
    convert(place, tmp_path / "hf", "hf", family="qwen3")
    written = weights(tmp_path / "hf")
    found = {name: one.read(one.box) for name, one in source.of_kind(WEIGHT).items()}
    assert same({name: one.to(written[name].dtype) for name, one in found.items()}, written)
    assert source.kinds == [WEIGHT, "exp_avg", "exp_avg_sq"]
    assert source.of_kind("exp_avg").keys() == source.of_kind("exp_avg_sq").keys() == written.keys()


def test_without_a_family_dcp_gets_every_tensor_with_megatrons_names(tmp_path: Path):
    place = GOLDEN / "megatron-qwen3"
    source = open_checkpoint(place)
    convert(place, tmp_path / "dcp", "dcp", shards=3)
    state = {entry.name: torch.zeros(entry.tensor.shape, dtype=entry.tensor.dtype) for entry in source.entries}
    dcp.load(state, checkpoint_id=tmp_path / "dcp")
    assert same(state, {entry.name: entry.tensor.read(entry.tensor.box) for entry in source.entries})
    assert source.of_kind(MASTER).keys() == source.of_kind(WEIGHT).keys()


@pytest.mark.nightly
def test_a_checkpoint_that_the_package_saves_now_and_loads_again(family: str, parent: Path, tmp_path: Path):
    save_anew(*SCRIPT, RANKS[family], "save", family, tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "hf", "hf", parent=parent)
    check_logits(tmp_path / "hf", tmp_path / "saved/logits.safetensors", TOLERANCE[family])
    if family == "qwen3":  # its norms are in fp32
        file = tmp_path / "hf/model.safetensors"
        save_file({name: one.bfloat16() for name, one in load_file(file).items()}, file)
    convert(tmp_path / "hf", tmp_path / "back", "megatron", shards=3)
    save_anew(*SCRIPT, 2, "load", family, tmp_path / "back", tmp_path / "logits.safetensors")
    one, other = (load_file(place / "logits.safetensors")["logits"] for place in (tmp_path, tmp_path / "saved"))
    assert (one - other).abs().max() < TOLERANCE[family]


def changed(folder: Path, **config: Any) -> Path:
    """Changes keys of a config."""
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    return folder


@pytest.mark.parametrize(
    "config",
    [
        {"num_attention_heads": 8},
        {"num_hidden_layers": 3},
        {"tie_word_embeddings": False},
        {"vocab_size": 40},
        {"model_type": "llama"},
        {"model_type": "qwen3"},
        {"hidden_size": None},
    ],
    ids=lambda config: next(iter(config)) + "=" + str(next(iter(config.values()))),
)
def test_a_config_of_another_network_is_refused_by_the_tensor_or_key(
    config: dict[str, Any], tmp_path: Path, sentence: Sentences
):
    parent = changed(parent_of("qwen2", tmp_path / "parent"), **config)
    with sentence.raises((CheckpointError, UsageError)):
        convert(GOLDEN / "megatron-qwen2", tmp_path / "hf", "hf", parent=parent)
    assert not (tmp_path / "hf").exists()


def test_weights_without_a_place_or_of_several_types_are_named(tmp_path: Path, sentence: Sentences):
    parent = parent_of("qwen2", tmp_path / "parent")
    convert(GOLDEN / "megatron-qwen2", tmp_path / "hf", "hf", parent=parent)
    file, before = tmp_path / "hf/model.safetensors", weights(tmp_path / "hf")
    lacking = {name: one for name, one in before.items() if name != "model.layers.1.self_attn.k_proj.bias"}
    for state in (
        {**before, "visual.patch_embed.weight": torch.ones(2)},
        lacking,
        {**before, "model.layers.1.self_attn.k_proj.bias": torch.ones(4).bfloat16()},
    ):
        save_file(state, file)
        with sentence.raises(CheckpointError, tmp_path / "hf"):
            convert(tmp_path / "hf", tmp_path / "new", "megatron")


def test_other_formats_of_megatron_and_usage_are_refused_by_name(tmp_path: Path, sentence: Sentences):
    place = tmp_path / "copy"
    with sentence.raises(UsageError, "Megatron"):
        convert(GOLDEN / "megatron-qwen2", tmp_path / "new", "megatron")
    shutil.copytree(GOLDEN / "megatron-qwen2", place)
    (place / "iter_0000003/metadata.json").write_text('{"sharded_backend": "zarr"}')
    with sentence.raises(CheckpointError, "zarr"):
        open_checkpoint(place)
    (place / "iter_0000003/metadata.json").unlink()
    (place / "iter_0000003/mp_rank_00").mkdir()
    (place / "iter_0000003/mp_rank_00/model_optim_rng.pt").touch()
    with sentence.raises(CheckpointError, "torch_dist"):
        open_checkpoint(place)
