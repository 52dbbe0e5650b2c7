"""Checkpoints without a training: looked into, checked, cut for other ranks, exported."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from learning.checkpoint import Checkpoints, inspect, open_store, reshard, verify
from learning.checkpoint.offline import TensorKind
from learning.export import export
from schemas.failure import CheckpointError, UsageError
from tests.fixtures.sentences import Sentences


def numbers() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(5)
    return {
        "a": torch.randn(50, 20, generator=draw),
        "b": torch.randn(3, generator=draw).bfloat16(),
        "step": torch.tensor(7.0),
        "none": torch.empty(0, 2),
    }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints"
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(numbers(), 40, {"seed": 3})
    return folder


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parent") / "model"
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, num_key_value_heads=2, dtype="bfloat16", **sizes))
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text("{}")
    return folder


def trained(parent: Path, folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """A checkpoint of the parent's weights, moved on and in fp32, beside a moment."""
    weights = {name: tensor.float() + 1 for name, tensor in load_file(parent / "model.safetensors").items()}
    with Checkpoints(folder) as checkpoints:
        checkpoints.save({f"model.{name}": tensor for name, tensor in weights.items()} | {"adam.x": torch.ones(3)}, 1)
    return folder, weights


def test_a_look_inside_tells_steps_extra_files_and_tensors(place: Path):
    found = inspect(open_store(place))
    assert (found.step, found.steps, found.ranks, found.extra) == (40, [40], 1, {"seed": 3})
    assert found.tensors["b"] == TensorKind("bfloat16", (3,))
    assert found.tensor_bytes == 50 * 20 * 4 + 6 + 4
    assert found.files.keys() == {path.name for path in (place / "step-00000040").iterdir()} - {"manifest.json"}


@pytest.mark.parametrize("file", ["*.distcp", ".metadata"])
def test_a_flipped_byte_is_found_in_any_file_and_its_tensors_are_named(place: Path, file: str):
    store = open_store(place)
    assert verify(store).ok
    (path,) = (place / "step-00000040").glob(file)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)
    found = verify(store)
    assert not found.ok and list(found.damaged) == [path.name]
    assert found.damaged[path.name] == (["a", "b", "none", "step"] if file == "*.distcp" else [])


@pytest.mark.parametrize("ranks", [1, 3, 60])
def test_a_checkpoint_is_cut_anew_for_any_number_of_ranks(place: Path, tmp_path: Path, ranks: int):
    target = open_store(tmp_path / "cut")
    made = reshard(open_store(place), target, ranks)
    assert made.ranks == ranks and verify(target).ok
    files = sorted((tmp_path / "cut" / "step-00000040").glob("*.distcp"))
    assert len(files) == min(ranks, 51)  # fifty rows, and the tensor without any
    found = {name: torch.zeros_like(tensor) for name, tensor in numbers().items()}
    assert Checkpoints(tmp_path / "cut").load(found) == {"seed": 3}
    assert all(torch.equal(found[name], tensor) for name, tensor in numbers().items())


def test_a_target_that_has_the_step_is_left_alone(place: Path, tmp_path: Path, sentence: Sentences):
    target = open_store(tmp_path / "cut")
    reshard(open_store(place), target, 2)
    before = {path: path.read_bytes() for path in (tmp_path / "cut").rglob("*") if path.is_file()}
    for goal in (target, open_store(place)):
        with sentence.raises(CheckpointError, "step-00000040"):
            reshard(open_store(place), goal, 3)
    assert {path: path.read_bytes() for path in (tmp_path / "cut").rglob("*") if path.is_file()} == before


def test_a_damaged_source_leaves_nothing_at_the_target(place: Path, tmp_path: Path, sentence: Sentences):
    (path,) = (place / "step-00000040").glob("*.distcp")
    content = bytearray(path.read_bytes())
    content[3000] ^= 1
    path.write_bytes(content)
    with sentence.raises(CheckpointError, "`a`", path):
        reshard(open_store(place), open_store(tmp_path / "cut"), 2)
    assert not list((tmp_path / "cut").rglob("*.*"))


def test_transformers_loads_the_export_with_the_parents_other_files(parent: Path, tmp_path: Path):
    place, weights = trained(parent, tmp_path / "checkpoints")
    for name, most in (("one", 1 << 30), ("many", 20_000)):
        made = export(open_store(place), parent, tmp_path / name, most=most)
        assert (made.files > 1) == (name == "many")
        model = LlamaForCausalLM.from_pretrained(tmp_path / name)
        for key, tensor in model.state_dict().items():
            assert tensor.dtype == torch.bfloat16 and torch.equal(tensor, weights[key].bfloat16()), key
        assert (tmp_path / name / "preprocessor_config.json").exists()
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == weights.keys()


def test_an_export_refuses_another_architecture_and_a_folder_in_use(
    parent: Path, place: Path, tmp_path: Path, sentence: Sentences
):
    with sentence.raises(CheckpointError, "model.", hint="`a.`"):
        export(open_store(place), parent, tmp_path / "out")
    with sentence.raises(CheckpointError):
        export(open_store(place), parent, tmp_path / "out", prefix="")
    with pytest.raises(UsageError, match=r"has no config\.json"):
        export(open_store(place), place, tmp_path / "out")
    with sentence.raises(UsageError):
        export(open_store(place), parent, parent)
    weights = {f"model.{name}": tensor for name, tensor in load_file(parent / "model.safetensors").items()}
    weights["model.model.norm.weight"] = torch.ones(33)
    with Checkpoints(tmp_path / "odd") as checkpoints:
        checkpoints.save(weights, 1)
    with sentence.raises(CheckpointError, "model.norm.weight"):
        export(open_store(tmp_path / "odd"), parent, tmp_path / "out")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".export-*"))
