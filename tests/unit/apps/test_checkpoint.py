"""`flywheel checkpoint` as a program sees it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from apps import cli, interrupts
from learning.checkpoint import Checkpoints

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def flywheel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*words: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["flywheel", "checkpoint", *map(str, words)])
        monkeypatch.setattr(interrupts, "ignore", lambda: None)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return call


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with Checkpoints(tmp_path / "run") as checkpoints:
        for step in (10, 20):
            checkpoints.save({"model.w": torch.ones(4, 3), "adam.step": torch.tensor(1.0)}, step, {"position": step})
    return tmp_path / "run"


def test_inspect_shows_the_last_step_or_the_one_asked_for(flywheel: Call, place: Path):
    code, out, err = flywheel("inspect", place, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["step"] == 20 and found["extra"] == {"position": 20} and found["steps"] == [10, 20]
    code, out, _ = flywheel("inspect", place, "--step", 10)
    assert code == 0 and "step 10" in out and "4 x 3" in out


def test_verify_fails_with_the_damaged_files_name(flywheel: Call, place: Path):
    code, out, _ = flywheel("verify", place)
    assert code == 0 and "all as saved" in out
    (shard,) = (place / "step-00000020").glob("*.distcp")
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    code, out, _ = flywheel("verify", place, "--json")
    assert code == 1 and json.loads(out)["damaged"] == {shard.name: ["adam.step", "model.w"]}
    code, out, _ = flywheel("verify", place)
    assert code == 1 and f"{shard.name} differs from the saved data" in out
    shard.unlink()
    code, _, err = flywheel("verify", place)
    assert code == 1 and f"{shard} is missing" in err and err.count("\n") == 1


def test_verify_names_a_few_of_many_and_json_names_all(flywheel: Call, tmp_path: Path):
    with Checkpoints(tmp_path / "run") as checkpoints:
        checkpoints.save({f"layer.{number}.w": torch.ones(2) for number in range(170)}, 1, {})
    (shard,) = (tmp_path / "run/step-00000001").glob("*.distcp")
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    _, out, _ = flywheel("verify", tmp_path / "run")
    assert out.count("layer.") == 3 and "170 tensors in it" in out and "167 more (--json has all)" in out
    found = json.loads(flywheel("verify", tmp_path / "run", "--json")[1])
    assert [len(names) for names in found["damaged"].values()] == [170]


def test_reshard_writes_a_new_place_once(flywheel: Call, place: Path, tmp_path: Path):
    code, out, _ = flywheel("reshard", place, "--to", tmp_path / "new", "--ranks", 3, "--json")
    assert code == 0 and json.loads(out) == {"place": str(tmp_path / "new"), "step": 20, "ranks": 3}
    code, _, err = flywheel("reshard", place, "--to", tmp_path / "new", "--ranks", 3)
    assert code == 1 and "already there" in err
    code, _, err = flywheel("reshard", place, "--to", tmp_path / "other", "--ranks", 0)
    assert code == 2 and "`--ranks` is 0" in err


def test_errors_are_one_line_with_the_address(flywheel: Call, place: Path, tmp_path: Path):
    code, _, err = flywheel("inspect", tmp_path / "nothing")
    assert code == 1 and f"no committed checkpoint at {tmp_path / 'nothing'}" in err and err.count("\n") == 1
    code, _, err = flywheel("inspect", place, "--step", 15)
    assert code == 1 and "no checkpoint of step 15" in err and "10, 20" in err
    code, _, err = flywheel("export", place, "--to", tmp_path / "out", "--parent", tmp_path)
    assert code == 2 and "has no config.json" in err
