"""Which files hold a checkpoint's weights: one answer for the trainer, the policy, hashes, imports and servers.

The right answers are those of transformers 5.23.0 (`modeling_utils.py`, `_get_resolved_checkpoint_files`), which runs
here, of vLLM 0.33.0 (`model_executor/model_loader/default_loader.py` and `weight_utils.py`,
`filter_duplicate_safetensors_files`) and of SGLang 0.5.23 (`srt/model_loader/weight_utils.py`).
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from learning.engines.fsdp.adapters import is_adapter
from learning.engines.fsdp.engine import FsdpEngine
from learning.engines.fsdp.model import load_model
from learning.engines.fsdp.shards import whole
from models.safe import carried, left_over, require_servable, unsound_weight, weight_files, weights_of, write_index
from models.serving.local import TransformersModel
from models.tiny.layout import CRITIC
from models.weights import fingerprint
from schemas.failure import CheckpointError
from tasks.adopt import files_of
from tests.fixtures.sentences import Sentences
from tests.unit.learning.chats import POLICY, job

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def sharded(folder: Path) -> Path:
    """The same checkpoint as two shards with an index."""
    state = load_file(folder / SINGLE)
    names = sorted(state)
    for old in (SINGLE, INDEX):
        (folder / old).unlink(missing_ok=True)
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    places = {name: files[at % 2] for at, name in enumerate(names)}
    for file in files:
        save_file({name: state[name] for name in names if places[name] == file}, folder / file, {"format": "pt"})
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def other(folder: Path, name: str, share: int = 1) -> None:
    """Another save's file: every `share`-th weight of the checkpoint, each one larger by 1."""
    state = {key: tensor for file in weight_files(folder) for key, tensor in load_file(file).items()}
    moved = {key: (tensor + 1).contiguous() for key, tensor in list(state.items())[::share]}
    save_file(moved, folder / name, {"format": "pt"})


LEFT_OVER: dict[str, Callable[[Path], object]] = {
    "shards of another save": lambda folder: other(sharded(folder), "model-00002-of-00003.safetensors", 14),
    "an older save with more files": lambda folder: other(sharded(folder), "model-00009-of-00009.safetensors"),
    "averaged weights": lambda folder: other(folder, "model_ema.safetensors", 2),
    "weights that sort last": lambda folder: other(folder, "zzz.safetensors"),
    "an index of another name": lambda folder: (folder / "model.fp16.safetensors.index.json").write_text("{}"),
}


@pytest.mark.parametrize("left", LEFT_OVER)
def test_training_begins_from_the_weights_that_act_whatever_files_of_other_saves_lie_there(
    left: str, tmp_path: Path
) -> None:
    plan = job(tmp_path, "qwen3_vl")
    wanted = {name: one.float() for name, one in load_model(plan.parent).named_parameters()}
    LEFT_OVER[left](plan.parent)
    print_of = fingerprint(plan.parent)
    engine = FsdpEngine(plan, 0, 1)
    held = {name: whole(one) for name, one in engine._model.named_parameters() if not is_adapter(name)}
    engine.close()
    acts = dict(TransformersModel(plan.parent, POLICY).model.named_parameters())
    assert held.keys() == wanted.keys() == acts.keys()
    for name, one in wanted.items():
        assert torch.equal(held[name], one) and torch.equal(acts[name].float(), one), name
    spare = left_over(plan.parent)
    assert len(spare) == 1 and not {*spare} & ({file.name for file in files_of(plan.parent)} | carried(plan.parent))
    (plan.parent / spare[0]).unlink()
    assert left_over(plan.parent) == [] and fingerprint(plan.parent) == print_of != ""


def test_a_whole_file_and_an_index_of_other_files_are_refused_as_transformers_and_servers_part_there(
    tmp_path: Path,
    sentence: Sentences,
) -> None:
    plan = job(tmp_path, "qwen3_vl")
    state = load_file(plan.parent / SINGLE)
    sharded(plan.parent)
    save_file({name: one + 1 for name, one in state.items()}, plan.parent / SINGLE, {"format": "pt"})
    for read in (weight_files, files_of, unsound_weight, lambda folder: TransformersModel(folder, POLICY)):
        with sentence.raises(CheckpointError):
            read(plan.parent)
    with sentence.raises(CheckpointError):
        FsdpEngine(plan, 0, 1)
    assert fingerprint(plan.parent) == ""


def _index(places: object) -> Callable[[Path], object]:
    return lambda folder: (folder / INDEX).write_text(json.dumps({"weight_map": places}))


def _both(folder: Path) -> None:
    save_file({"b": torch.zeros(2)}, folder / "model-2.safetensors")
    _index({"a": SINGLE, "b": "model-2.safetensors"})(folder)


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "a shard that was not fetched": (_index({"a": "model-00001-of-00002.safetensors"}), "not in the directory"),
    "an index that is no JSON": (lambda folder: (folder / INDEX).write_text("version https://git-lfs"), "JSONDecode"),
    "an index without a map": (lambda folder: (folder / INDEX).write_text("[]"), "index.json: TypeError"),
    "an index of nothing": (_index({}), "names no file"),
    "an index of a pickle": (_index({"a": "pytorch_model.bin"}), "not a safetensors file in its directory"),
    "an index of a file elsewhere": (_index({"a": "../model.safetensors"}), "not a safetensors file in its directory"),
    "an index of a number": (_index({"a": 7}), "not a safetensors file in its directory"),
    "an index of more than the whole file": (_both, "transformers reads the one"),
    "a file that the config names": (
        lambda folder: (folder / "config.json").write_text('{"transformers_weights": "ema.safetensors"}'),
        "names ema.safetensors, which servers do not read",
    ),
    "an absent file that the config names": (
        lambda folder: (
            (folder / SINGLE).rename(folder / "model-1.safetensors"),
            _index({"a": "model-1.safetensors"})(folder),
            (folder / "config.json").write_text(f'{{"transformers_weights": "{SINGLE}"}}'),
        ),
        f"names {SINGLE}, which is not in the directory",
    ),
    "no whole file": (lambda folder: (folder / SINGLE).rename(folder / "ema.safetensors"), "it has ema.safetensors"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_directory_whose_files_are_not_certain_is_refused_by_the_name_of_the_file(
    broken: str, tmp_path: Path
) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / SINGLE)
    assert [file.name for file in weight_files(tmp_path)] == [SINGLE]
    spoil, message = BROKEN[broken]
    spoil(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        weight_files(tmp_path)
    assert fingerprint(tmp_path) == ""


def test_a_weight_that_two_files_hold_is_refused_by_its_name_and_theirs(tmp_path: Path, sentence: Sentences) -> None:
    plan = job(tmp_path, "qwen3_vl")
    sharded(plan.parent)
    one, two = weight_files(plan.parent)
    states = load_file(one), load_file(two)
    twice = sorted(states[0])[0]
    save_file({**states[1], twice: states[0][twice] + 1}, two, {"format": "pt"})
    for read in (weights_of, files_of, lambda folder: TransformersModel(folder, POLICY)):
        with sentence.raises(CheckpointError, one.name, two.name, twice):
            read(plan.parent)
    with sentence.raises(CheckpointError):
        FsdpEngine(plan, 0, 1)


def test_a_policy_with_a_weight_missing_does_not_act_with_a_random_one(tmp_path: Path, sentence: Sentences) -> None:
    plan = job(tmp_path, "qwen3_vl")
    state = load_file(plan.parent / SINGLE)
    gone = next(name for name in state if name.endswith("layers.1.mlp.up_proj.weight"))
    save_file({name: one for name, one in state.items() if name != gone}, plan.parent / SINGLE, {"format": "pt"})
    with sentence.raises(CheckpointError, "layers.1.mlp.up_proj.weight"):
        TransformersModel(plan.parent, POLICY)
    with sentence.raises(CheckpointError):
        load_model(plan.parent)


def test_a_server_is_given_no_directory_of_which_it_would_read_more_than_the_checkpoint(
    tmp_path: Path, sentence: Sentences
) -> None:
    """Without an index vLLM and SGLang read every `*.safetensors`: also the critic of a training by PPO."""
    save_file({"a": torch.zeros(2)}, tmp_path / SINGLE)
    require_servable(tmp_path)
    shutil.copy(tmp_path / SINGLE, tmp_path / CRITIC)
    with sentence.raises(CheckpointError, CRITIC, hint="flywheel adopt"):
        require_servable(tmp_path)
    write_index(tmp_path)
    require_servable(tmp_path)
    assert json.loads((tmp_path / INDEX).read_text())["weight_map"] == {"a": SINGLE}
    shutil.copy(tmp_path / SINGLE, tmp_path / "consolidated.safetensors")
    with sentence.raises(CheckpointError, "consolidated.safetensors", hint="flywheel adopt"):
        require_servable(tmp_path)


def test_a_server_is_given_no_index_of_which_it_would_read_one_file_alone(tmp_path: Path, sentence: Sentences) -> None:
    """vLLM 0.33.0 reads `consolidated*.safetensors` alone where there are any, whatever the index names."""
    for name in ("a", "b"):
        save_file({name: torch.zeros(2)}, tmp_path / f"consolidated-{name}.safetensors")
    save_file({"c": torch.zeros(2)}, tmp_path / "model-c.safetensors")
    places = {name: f"consolidated-{name}.safetensors" for name in ("a", "b")}
    _index(places | {"c": "model-c.safetensors"})(tmp_path)
    with sentence.raises(CheckpointError, "consolidated-a.safetensors"):
        require_servable(tmp_path)
    (tmp_path / "model-c.safetensors").unlink()
    _index(places)(tmp_path)
    require_servable(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda whole: whole[:-5], r"has 67 bytes, and its header has 72.*Fetch or save"),
        (lambda whole: whole + b"x", r"has 73 bytes, and its header has 72"),
        (lambda whole: whole[:20], r"model\.safetensors"),
        (lambda _: b"", r"model\.safetensors"),
        (
            lambda _: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            r"Git LFS pointer.*git lfs pull",
        ),
    ],
    ids=["cut", "longer", "cut in its header", "empty", "a pointer"],
)
def test_a_file_that_is_not_whole_is_refused_before_anything_reads_its_weights(
    tmp_path: Path, spoil: Callable[[bytes], bytes], message: str
) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / SINGLE)
    assert (tmp_path / SINGLE).stat().st_size == 72 and [*weights_of(tmp_path)] == ["a"]
    (tmp_path / SINGLE).write_bytes(spoil((tmp_path / SINGLE).read_bytes()))
    with pytest.raises(CheckpointError, match=message):
        weights_of(tmp_path)
