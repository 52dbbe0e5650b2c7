"""Conversions between formats keep every number, hold little memory, and appear whole or not at all."""

import json
import multiprocessing
import os
import pickle
import shutil
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from common.atomic_folder import swept
from learning.checkpoint import Checkpoints, open_store, verify
from learning.conversion import stored
from learning.conversion.convert import convert
from learning.conversion.opening import open_checkpoint
from learning.conversion.source import WEIGHT
from models.random_vlm import build_random
from schemas.failure import CheckpointError, DamagedError, UsageError
from storage import objects
from tests.fixtures.sentences import Sentences
from tests.system.parts.ranks import run
from tests.unit.learning.conversion.networks import SIZES, qwen, same, weights


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return qwen(tmp_path_factory.mktemp("network") / "hf")


@pytest.fixture
def trained(network: Path, tmp_path: Path) -> Path:
    """A checkpoint by `dcp.save` with the names of torch's own functions, and a value that is no tensor."""
    model = {f"model.{name}": one for name, one in weights(network).items()}
    moments = {f"optim.state.{name}.exp_avg": one.float() * 2 for name, one in weights(network).items()}
    dcp.save({**model, **moments, "optim.lr": 0.1}, checkpoint_id=tmp_path / "run" / "step-70")
    return tmp_path / "run"


def test_weights_come_back_bit_by_bit_through_every_format_and_number_of_shards(network: Path, tmp_path: Path):
    before = weights(network)
    place = network
    for number, (form, shards) in enumerate([("dcp", 1), ("hf", 3), ("flywheel", 4), ("dcp", 3), ("hf", 1)]):
        made = convert(place, tmp_path / str(number), form, shards)
        assert (made.tensors, made.bytes) == (len(before), sum(one.nbytes for one in before.values()))
        assert made.files == shards
        place = tmp_path / str(number)
    assert same(weights(place), before)
    found = {f"model.{name}": torch.zeros_like(one) for name, one in before.items()}
    dcp.load(found, checkpoint_id=tmp_path / "3")
    assert same({name.removeprefix("model."): one for name, one in found.items()}, before)
    assert verify(open_store(tmp_path / "2")).ok
    with Checkpoints(tmp_path / "2") as checkpoints:
        checkpoints.load(found)


def test_transformers_loads_weights_of_dcp_with_the_parents_files(trained: Path, network: Path, tmp_path: Path):
    made = convert(trained, tmp_path / "hf", "hf", shards=2, parent=network)
    assert made.step == 70 and (tmp_path / "hf/tokenizer.json").is_file()
    assert any("optim.lr" in note for note in made.notes) and any("exp_avg" in note for note in made.notes)
    index = json.loads((tmp_path / "hf/model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {file.name for file in (tmp_path / "hf").glob("*.safetensors")}
    one, other = (AutoModelForCausalLM.from_pretrained(place) for place in (tmp_path / "hf", network))
    assert same(one.state_dict(), other.state_dict())


def test_optimiser_state_moves_between_dcp_and_this_projects_format(trained: Path, tmp_path: Path):
    convert(trained, tmp_path / "own", "flywheel", shards=3)
    source = open_checkpoint(tmp_path / "own")
    assert (source.format, source.step, dict(source.layout)) == ("flywheel", 70, {"ranks": 3})
    moment = source.of_kind("exp_avg")["model.norm.weight"]
    assert torch.equal(
        moment.read(moment.box), source.of_kind(WEIGHT)["model.norm.weight"].read(moment.box).float() * 2
    )


@pytest.mark.slow
def test_shards_of_several_ranks_and_dimensions_become_whole_tensors(tmp_path: Path):
    run("tests.system.parts.dcp_ranks", tmp_path / "run", ranks=2)
    source = open_checkpoint(tmp_path / "run")
    assert dict(source.layout) == {"ranks": 2}
    convert(tmp_path / "run", tmp_path / "hf", "hf")
    found = weights(tmp_path / "hf")
    assert torch.equal(found["rows"], torch.arange(21.0).view(7, 3))
    assert torch.equal(found["columns"], torch.arange(20.0).view(4, 5))


@pytest.mark.slow
def test_a_conversion_holds_slices_and_never_a_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stored, "BUFFER", 4 << 20)
    (tmp_path / "hf").mkdir()
    save_file({"large": torch.zeros(160 << 20, dtype=torch.uint8)}, tmp_path / "hf/model.safetensors")
    convert(qwen(tmp_path / "small"), tmp_path / "first", "flywheel")  # imports what is imported late
    for number, (place, form) in enumerate([("hf", "dcp"), ("0", "hf"), ("1", "flywheel")]):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = _memory("VmRSS")
        convert(tmp_path / place, tmp_path / str(number), form)
        assert _memory("VmHWM") - before < 64 << 20


def _memory(kind: str) -> int:
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(kind))
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("form", ["hf", "dcp", "flywheel"])
def test_a_killed_conversion_leaves_nothing_under_the_name_and_the_same_command_succeeds(
    network: Path, tmp_path: Path, form: str
):
    target = tmp_path / "made"
    for at in (1, 4, 9):
        process = multiprocessing.get_context("fork").Process(target=_convert_and_die, args=(network, target, form, at))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        assert not target.exists()
    assert len(swept(target)) == 3
    convert(network, target, form)
    assert list(tmp_path.iterdir()) == [target]


def _convert_and_die(network: Path, target: Path, form: str, at: int) -> None:
    count = 0
    write = objects._CompleteWriter.write

    def counted(writer: objects._CompleteWriter, data: objects.Buffer) -> None:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        write(writer, data)

    objects._CompleteWriter.write = counted
    torch.set_num_threads(1)
    convert(network, target, form)
    os._exit(0)


def test_nothing_is_overwritten_and_usage_is_checked_first(network: Path, tmp_path: Path, sentence: Sentences):
    with sentence.raises(UsageError, network):
        convert(network, network, "hf")
    with sentence.raises(UsageError, "deepspeed", hint="flywheel"):
        convert(network, tmp_path / "new", "deepspeed")
    with sentence.raises(UsageError, "--shards"):
        convert(network, tmp_path / "new", "dcp", shards=0)
    with sentence.raises(UsageError, "config.json"):
        convert(network, tmp_path / "new", "hf", parent=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_no_known_trainer_is_refused_by_name(tmp_path: Path, sentence: Sentences):
    with sentence.raises(CheckpointError, tmp_path / "gone"):
        open_checkpoint(tmp_path / "gone")
    with sentence.raises(CheckpointError, tmp_path):
        open_checkpoint(tmp_path)
    (tmp_path / "notes.txt").touch()
    with sentence.raises(CheckpointError, "notes.txt"):
        open_checkpoint(tmp_path)
    (tmp_path / "model_world_size_8_rank_0.pt").touch()
    with sentence.raises(CheckpointError, "verl"):
        open_checkpoint(tmp_path)


def test_a_missing_file_or_step_is_named(trained: Path, tmp_path: Path, sentence: Sentences):
    with sentence.raises(CheckpointError, "80", hint="70"):
        open_checkpoint(trained, step=80)
    (trained / "step-70/__0_0.distcp").unlink()
    with sentence.raises(DamagedError, "__0_0.distcp"):
        convert(trained, tmp_path / "new", "hf")
    assert not (tmp_path / "new").exists()


def test_a_file_outside_the_folder_is_refused(tmp_path: Path, sentence: Sentences):
    dcp.save({"w": torch.ones(3)}, checkpoint_id=tmp_path / "run")
    file = tmp_path / "run/.metadata"
    metadata = pickle.loads(file.read_bytes())
    (index,) = metadata.storage_data
    metadata.storage_data[index].relative_path = "../other.distcp"
    file.write_bytes(pickle.dumps(metadata))
    with sentence.raises(DamagedError, "../other.distcp"):
        open_checkpoint(tmp_path / "run")


def test_a_weight_that_is_missing_doubled_or_reshaped_is_named(network: Path, tmp_path: Path, sentence: Sentences):
    index = "model.safetensors.index.json"
    for fault in ("missing", "doubled", "reshaped"):
        place = tmp_path / fault
        convert(network, place, "hf", shards=2)
        file = place / "model-00002-of-00002.safetensors"
        if fault == "missing":
            listed = json.loads((place / index).read_text())
            listed["weight_map"]["model.other.weight"] = file.name
            (place / index).write_text(json.dumps(listed))
        elif fault == "doubled":
            shutil.copyfile(file, place / "model-00001-of-00002.safetensors")
        else:
            file.write_bytes(file.read_bytes().replace(b'"shape":[16]', b'"shape":[17]', 1))
        with sentence.raises(CheckpointError, place):
            convert(place, tmp_path / "new", "dcp")


def test_a_changed_byte_of_this_projects_checkpoint_is_found(network: Path, tmp_path: Path, sentence: Sentences):
    convert(network, tmp_path / "own", "flywheel")
    (file,) = (tmp_path / "own").rglob("*.distcp")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with sentence.raises(DamagedError, file):
        convert(tmp_path / "own", tmp_path / "new", "hf")


def test_tied_weights_are_written_once_and_must_be_equal(network: Path, tmp_path: Path, sentence: Sentences):
    model = {f"model.{name}": one for name, one in weights(network).items()}
    model["model.lm_head.weight"] = model["model.model.embed_tokens.weight"].clone()
    dcp.save(model, checkpoint_id=tmp_path / "tied")
    made = convert(tmp_path / "tied", tmp_path / "hf", "hf", parent=network)
    assert any("lm_head.weight" in note for note in made.notes) and same(weights(tmp_path / "hf"), weights(network))
    model["model.lm_head.weight"][0] += 1
    dcp.save(model, checkpoint_id=tmp_path / "other")
    with sentence.raises(CheckpointError, "lm_head.weight", hint="tie_word_embeddings"):
        convert(tmp_path / "other", tmp_path / "new", "hf", parent=network)


@pytest.mark.parametrize("fault", ["missing", "renamed", "reshaped", "extra"])
@pytest.mark.parametrize("form", ["hf", "dcp", "flywheel"])
def test_weights_that_are_not_the_parents_network_are_refused_by_name(
    form: str, fault: str, network: Path, tmp_path: Path, sentence: Sentences
):
    state, name = weights(network), "model.layers.1.mlp.up_proj.weight"
    if fault == "extra":
        state["model.extra.weight"] = torch.ones(3)
    elif fault == "reshaped":
        state[name] = state[name][:-1].clone()
    else:
        one = state.pop(name)
        state |= {name.replace("up_proj", "w3"): one} if fault == "renamed" else {}
    faulty = tmp_path / "faulty"
    shutil.copytree(network, faulty)
    save_file(state, faulty / "model.safetensors", metadata={"format": "pt"})
    place = faulty if form == "hf" else tmp_path / form
    if form != "hf":
        convert(faulty, place, form)
    with sentence.raises(CheckpointError, name if fault != "extra" else "model.extra.weight", hint="parent"):
        convert(place, tmp_path / "new", "hf", parent=network)
    assert not (tmp_path / "new").exists()
    if form == "hf":
        with sentence.raises(CheckpointError, "model."):
            convert(place, tmp_path / "new", "hf")  # by the directory's own config


def test_a_parent_of_a_network_unknown_to_transformers_is_compared_by_its_weights(
    network: Path, tmp_path: Path, sentence: Sentences
):
    parent = tmp_path / "parent"
    shutil.copytree(network, parent)
    (parent / "config.json").write_text(json.dumps({"model_type": "unheard-of", "tie_word_embeddings": True}))
    convert(network, tmp_path / "same", "hf", parent=parent)
    state = weights(network)
    del state["model.norm.weight"]
    save_file(state, tmp_path / "same" / "model.safetensors", metadata={"format": "pt"})
    with sentence.raises(CheckpointError, "model.norm.weight"):
        convert(tmp_path / "same", tmp_path / "new", "hf", parent=parent)
    assert any("not compared" in note for note in convert(tmp_path / "same", tmp_path / "new", "hf").notes)


@pytest.mark.parametrize("stored", ["split", "fused"])
def test_experts_are_compared_as_they_are_stored(stored: str, tmp_path: Path, sentence: Sentences):
    sizes = {**SIZES, "moe_intermediate_size": 8, "num_experts": 4, "num_experts_per_tok": 2}
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes))
    model.save_pretrained(tmp_path / "parent")
    whole = model.state_dict() if stored == "fused" else weights(tmp_path / "parent")
    dcp.save({f"model.{name}": one for name, one in whole.items()}, checkpoint_id=tmp_path / "whole")
    convert(tmp_path / "whole", tmp_path / "hf", "hf", parent=tmp_path / "parent")
    _, report = Qwen3MoeForCausalLM.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(report.values())
    names = sorted(name for name in whole if "layers.1.mlp.experts" in name)
    rest = {f"model.{name}": one for name, one in whole.items() if name != names[-1]}
    dcp.save(rest, checkpoint_id=tmp_path / "rest")
    with sentence.raises(CheckpointError, "layers.1.mlp.experts"):
        convert(tmp_path / "rest", tmp_path / "new", "hf", parent=tmp_path / "parent")


def test_the_whole_networks_config_decides_whether_the_embeddings_are_tied(tmp_path: Path):
    build_random("qwen3_vl_moe", ["Click."] * 8, 0, tmp_path / "parent")
    convert(tmp_path / "parent", tmp_path / "hf", "hf", parent=tmp_path / "parent")
    assert same(weights(tmp_path / "hf"), weights(tmp_path / "parent"))


def test_a_prefix_that_no_weight_has_is_refused(trained: Path, sentence: Sentences):
    with sentence.raises(CheckpointError, "`net.`", hint="`model.`"):
        open_checkpoint(trained, prefix="net.")


def test_options_without_effect_are_refused(network: Path, trained: Path, tmp_path: Path, sentence: Sentences):
    with sentence.raises(UsageError, "--prefix"):
        open_checkpoint(network, prefix="model.")
    with sentence.raises(UsageError, "--step"):
        open_checkpoint(network, step=3)
    with sentence.raises(UsageError, "--family"):
        convert(trained, tmp_path / "hf", "hf", parent=network, family="qwen3")
