"""A manifest vouches for its checkpoint: what it lost is named, and a restart passes over what is damaged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from learning.checkpoint import Checkpoints
from schemas.failure import CheckpointError, DamagedError
from tests.fixtures.sentences import Sentences
from tests.unit.learning.checkpoint.states import files, numbers, same, saved, zeros


def edited(place: Path, edit: Callable[[dict[str, Any]], None], step: int = 1) -> None:
    """Changes what a step's manifest says, as an earlier version would have written it: without its hash."""
    path = place / f"step-{step:08d}" / "manifest.json"
    content = json.loads(path.read_bytes())
    del content["sha256"]
    edit(content)
    path.write_text(json.dumps(content))


def test_a_manifest_of_an_earlier_version_loads(tmp_path: Path):
    checkpoints = saved(tmp_path)
    edited(tmp_path, lambda content: None)
    found = zeros(numbers())
    assert checkpoints.load(found) == {"seed": 1} and same(found, numbers(1))


@pytest.mark.parametrize(
    ("lose", "problem"),
    [
        (lambda content: content["pieces"].pop(), r"locates 0 of the 1 numbers of `optimizer\.step`"),
        (lambda content: content["tensors"].pop("model.b"), r"a piece of `model\.b` at \(0,\) does not fit"),
        (lambda content: content["pieces"][1].update(sizes=[16]), r"a piece of `model\.b` at \(0,\) does not fit"),
        (lambda content: content["files"].clear(), r"does not name .*distcp, which holds `"),
    ],
)
def test_a_manifest_that_lost_an_entry_is_refused_by_name(
    tmp_path: Path, lose: Callable[[dict[str, Any]], None], problem: str
):
    checkpoints = saved(tmp_path)
    edited(tmp_path, lose)
    found = zeros(numbers())
    with pytest.raises(DamagedError, match=rf"manifest\.json.*{problem}"):
        checkpoints.load(found)
    assert same(found, zeros(found))


def test_a_changed_byte_of_the_manifest_is_found(tmp_path: Path, sentence: Sentences):
    checkpoints = saved(tmp_path)
    path = tmp_path / "step-00000001" / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"seed":1', b'"seed":2'))
    with sentence.raises(DamagedError, path):
        checkpoints.load(zeros(numbers()))


def test_a_restart_goes_on_from_the_newest_whole_checkpoint_and_names_what_it_set_aside(tmp_path: Path):
    saved(tmp_path, 4, keep=9).close()
    (shard,) = (tmp_path / "step-00000004").glob("*.distcp")
    shard.write_bytes(shard.read_bytes()[:-1])
    (tmp_path / "step-00000003" / "manifest.json").write_text("{")
    before = files(tmp_path)
    found = zeros(numbers())
    with Checkpoints(tmp_path, keep=9) as checkpoints:
        restored = checkpoints.restore(found)
        assert (restored.step, restored.extra) == (2, {"seed": 2}) and same(found, numbers(2))
        assert [one.step for one in restored.damaged] == [4, 3]
        assert str(shard) in restored.damaged[0].problem
        asides = [Path(one.aside) for one in restored.damaged]
        assert all(aside.parent == tmp_path and aside.is_dir() for aside in asides)
        assert sorted(files(tmp_path).values()) == sorted(before.values()), "nothing is lost"
        checkpoints.save(numbers(3), 3, {"seed": 3}, blocking=True)
        checkpoints.save(numbers(4), 4, {"seed": 4}, blocking=True)
        assert checkpoints.restore(found).step == 4 and all(aside.is_dir() for aside in asides)


def forget_b(content: dict[str, Any]) -> None:
    """A tensor's entry and its pieces are lost."""
    del content["tensors"]["model.b"]
    content["pieces"] = [piece for piece in content["pieces"] if piece["tensor"] != "model.b"]


@pytest.mark.parametrize(
    ("lose", "problem"),
    [
        (forget_b, "has no tensor `model.b`"),
        (lambda content: content["tensors"]["model.b"].update(dtype="bfloat17"), "'bfloat17' is no type of torch's"),
        (lambda content: content["tensors"]["model.b"].update(dtype="nn"), "'nn' is no type of torch's"),
        (lambda content: content["pieces"][0].update(block=0), "should be greater than 0"),
    ],
)
def test_a_restart_passes_over_a_checkpoint_of_an_earlier_version_whose_manifest_lost_something(
    tmp_path: Path, lose: Callable[[dict[str, Any]], None], problem: str
):
    saved(tmp_path, 3, keep=9).close()
    edited(tmp_path, lose, 3)
    found = zeros(numbers())
    with Checkpoints(tmp_path, keep=9) as checkpoints:
        restored = checkpoints.restore(found)
    assert restored.step == 2 and same(found, numbers(2))
    assert [one.step for one in restored.damaged] == [3] and problem in restored.damaged[0].problem


def test_checkpoints_of_an_earlier_version_that_none_fits_are_of_another_architecture_and_stay(
    tmp_path: Path, sentence: Sentences
):
    saved(tmp_path, 2).close()
    edited(tmp_path, lambda content: None, 1)
    edited(tmp_path, lambda content: None, 2)
    before = files(tmp_path)
    with Checkpoints(tmp_path) as checkpoints, sentence.raises(CheckpointError, "model.v"):
        checkpoints.restore({"model.v": torch.zeros(3)})
    assert files(tmp_path) == before


def test_a_checkpoint_of_another_architecture_is_an_error_and_not_set_aside(tmp_path: Path):
    saved(tmp_path, 2).close()
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(CheckpointError, match=r"no tensor `model\.v`"):
        checkpoints.restore({"model.v": torch.zeros(3)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]
