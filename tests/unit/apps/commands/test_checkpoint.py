"""`flywheel checkpoint` as a program sees it."""

import json
from pathlib import Path

import pytest
import torch

from learning.checkpoint import Checkpoints
from tests.command import Call
from tests.fixtures.sentences import Sentences


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with Checkpoints(tmp_path / "run") as checkpoints:
        for step in (10, 20):
            checkpoints.save({"model.w": torch.ones(4, 3), "adam.step": torch.tensor(1.0)}, step, {"position": step})
    return tmp_path / "run"


def test_inspect_shows_the_last_step_or_the_one_asked_for(flywheel: Call, place: Path):
    code, out, err = flywheel("checkpoint", "inspect", place, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["step"] == 20 and found["extra"] == {"position": 20} and found["steps"] == [10, 20]
    code, out, _ = flywheel("checkpoint", "inspect", place, "--step", 10)
    assert code == 0 and "step 10" in out and "4 x 3" in out


def test_verify_fails_with_the_damaged_files_name(flywheel: Call, place: Path, sentence: Sentences):
    code, out, _ = flywheel("checkpoint", "verify", place)
    assert code == 0 and "all as saved" in out
    (shard,) = (place / "step-00000020").glob("*.distcp")
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    code, out, _ = flywheel("checkpoint", "verify", place, "--json")
    assert code == 1 and json.loads(out)["damaged"] == {shard.name: ["adam.step", "model.w"]}
    code, out, _ = flywheel("checkpoint", "verify", place)
    assert code == 1
    sentence.lines(out, shard.name)
    shard.unlink()
    code, _, err = flywheel("checkpoint", "verify", place)
    assert code == 1 and f"{shard} is missing" in err and err.count("\n") == 1


def test_verify_names_a_few_of_many_and_json_names_all(flywheel: Call, tmp_path: Path, sentence: Sentences):
    with Checkpoints(tmp_path / "run") as checkpoints:
        checkpoints.save({f"layer.{number}.w": torch.ones(2) for number in range(170)}, 1, {})
    (shard,) = (tmp_path / "run/step-00000001").glob("*.distcp")
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    _, out, _ = flywheel("checkpoint", "verify", tmp_path / "run")
    assert out.count("layer.") == 3 and "170 tensors in it" in out
    sentence.lines(out, "--json")
    found = json.loads(flywheel("checkpoint", "verify", tmp_path / "run", "--json")[1])
    assert [len(names) for names in found["damaged"].values()] == [170]


def test_reshard_writes_a_new_place_once(flywheel: Call, place: Path, tmp_path: Path):
    code, out, _ = flywheel("checkpoint", "reshard", place, "--to", tmp_path / "new", "--ranks", 3, "--json")
    assert code == 0 and json.loads(out) == {"place": str(tmp_path / "new"), "step": 20, "ranks": 3}
    code, _, err = flywheel("checkpoint", "reshard", place, "--to", tmp_path / "new", "--ranks", 3)
    assert code == 1 and "already there" in err
    code, _, err = flywheel("checkpoint", "reshard", place, "--to", tmp_path / "other", "--ranks", 0)
    assert code == 2 and "`--ranks` is 0" in err


def test_errors_are_one_line_with_the_address(flywheel: Call, place: Path, tmp_path: Path, sentence: Sentences):
    code, _, err = flywheel("checkpoint", "inspect", tmp_path / "nothing")
    assert code == 1 and err.count("\n") == 1
    sentence(err, tmp_path / "nothing")
    code, _, err = flywheel("checkpoint", "inspect", place, "--step", 15)
    assert code == 1 and "10, 20" in err
    sentence(err)
    code, _, err = flywheel("checkpoint", "export", place, "--to", tmp_path / "out", "--parent", tmp_path)
    assert code == 2 and "has no config.json" in err


def test_a_checkpoint_is_shown_and_converted(flywheel: Call, place: Path, tmp_path: Path, sentence: Sentences):
    code, out, err = flywheel("checkpoint", "show", place, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["format"], found["step"], found["layout"]) == ("flywheel", 20, {"ranks": 1})
    weight = {"dtype": "float32", "shape": [4, 3], "bytes": 48, "kind": "weight", "weight": "model.w"}
    assert found["tensors"]["model.w"] == {**weight, "optimizer_state": False}
    assert found["tensors"]["adam.step"]["optimizer_state"]
    code, out, _ = flywheel("checkpoint", "show", place, "--step", 10)
    assert code == 0 and "step 10; ranks 1" in out and "4 x 3" in out
    words = ("checkpoint", "convert", place, tmp_path / "hf", "--format", "hf", "--prefix", "model.")
    code, out, err = flywheel(*words)
    assert code == 0
    sentence(out + err)
    code, out, err = flywheel(*words, "--json")
    assert (code, out) == (2, "") and "already there" in err
    code, out, _ = flywheel("checkpoint", "show", tmp_path / "hf", "--json")
    assert code == 0 and list(json.loads(out)["tensors"]) == ["w"]
    code, _, err = flywheel("checkpoint", "convert", place, tmp_path / "new", "--format", "zip")
    assert code == 2
    sentence(err, "zip")
