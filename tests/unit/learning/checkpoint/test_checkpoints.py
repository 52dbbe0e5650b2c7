"""Checkpoints of one process: saving, loading, what is refused."""

import json
import multiprocessing
import os
import re
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
import torch.distributed.checkpoint as dcp

from learning.checkpoint import Checkpoints, State, Stretch, open_store, stretches, verify
from schemas.failure import CheckpointError
from storage.objects import LocalStore
from tests.fixtures.sentences import Sentences
from tests.unit.learning.checkpoint.states import files, numbers, same, saved, zeros


def test_what_was_saved_comes_back_with_its_extra(tmp_path: Path):
    saved(tmp_path, 2)
    found = zeros(numbers())
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() == 2
    assert checkpoints.load(found) == {"seed": 2} and same(found, numbers(2))
    assert checkpoints.load(found, 1) == {"seed": 1} and same(found, numbers(1))


def test_a_place_without_checkpoints_has_no_latest_and_loads_nothing(tmp_path: Path, sentence: Sentences):
    checkpoints = Checkpoints(tmp_path / "none")
    assert checkpoints.latest() is None
    with sentence.raises(CheckpointError):
        checkpoints.load(numbers())


def test_what_changes_after_save_returns_is_not_saved(tmp_path: Path):
    with Checkpoints(tmp_path) as checkpoints:
        state, extra = numbers(1), {"position": 8}
        checkpoints.save(state, 1, extra)
        for tensor in state.values():
            tensor.zero_()
        extra["position"] = 9
        checkpoints.wait()
        found = zeros(numbers())
        assert checkpoints.load(found) == {"position": 8}
        assert same(found, numbers(1))


def test_plain_dcp_reads_ours(tmp_path: Path):
    saved(tmp_path)
    found = zeros(numbers())
    dcp.load(found, checkpoint_id=tmp_path / "step-00000001", no_dist=True)
    assert same(found, numbers(1))


def test_the_last_checkpoints_are_kept_and_older_ones_go_whole(tmp_path: Path):
    saved(tmp_path, 4, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]


def test_leftovers_of_dead_saves_are_not_seen_and_swept_by_the_next_commit(tmp_path: Path):
    saved(tmp_path)
    dead = tmp_path / "step-00000009"
    dead.mkdir()
    (dead / "xyz-1-00000.distcp").write_bytes(b"half")
    (tmp_path / "step-00000001" / "xyz-0-00000.distcp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest() == 1
        checkpoints.save(numbers(2), 2, blocking=True)
    assert not dead.exists() and (tmp_path / "notes.txt").exists()
    assert not list(tmp_path.glob("*/xyz*"))


def test_a_committed_step_is_not_saved_again(tmp_path: Path, sentence: Sentences):
    saved(tmp_path)
    before = files(tmp_path)
    for checkpoints in (saved(tmp_path / "other"), Checkpoints(tmp_path)):
        place = Path(checkpoints.store.place)
        with sentence.raises(CheckpointError, "step-00000001", place):
            checkpoints.save(numbers(7), 1)
    assert {name: data for name, data in files(tmp_path).items() if not name.startswith("other")} == before


def test_saves_of_one_layout_are_planned_once(tmp_path: Path):
    with Checkpoints(tmp_path) as checkpoints:
        state = numbers()
        for step in range(3):
            checkpoints.save(state, step)
        first = checkpoints._plan
        assert checkpoints._ranks.planned == 1
        checkpoints.save({**state, "new": torch.ones(2)}, 3)
        assert checkpoints._ranks.planned == 2 and checkpoints._plan is not first
        checkpoints.save({**state, "new": torch.ones(2).double()}, 4)
        assert checkpoints._ranks.planned == 3


def test_a_stretch_saves_its_part_and_loads_any_other(tmp_path: Path):
    whole = torch.arange(7 * 5 * 3.0).view(7, 5, 3)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save({"t": whole}, 1)
        part: State = {"t": Stretch(torch.zeros(50), (7, 5, 3), 13)}
        checkpoints.load(part)
        assert isinstance(part["t"], Stretch) and torch.equal(part["t"].flat, whole.flatten()[13:63])
        checkpoints.save({"t": Stretch(whole.flatten().clone(), (7, 5, 3), 0)}, 2)
        found = {"t": torch.zeros(7, 5, 3)}
        checkpoints.load(found)
        assert torch.equal(found["t"], whole)


def test_a_buffer_of_many_tensors_is_cut_into_stretches_of_each():
    flat = torch.arange(20.0)
    parts = stretches(flat[3:17], 3, [("a", (2, 2)), ("b", (10,)), ("c", (2, 3))])
    assert {name: (part.start, part.flat.tolist()) for name, part in parts.items()} == {
        "a": (3, [3.0]),
        "b": (0, list(range(4, 14))),
        "c": (0, [14.0, 15.0, 16.0]),
    }


def test_stretches_that_leave_something_out_are_refused(tmp_path: Path, sentence: Sentences):
    with sentence.raises(CheckpointError, "`t`"):
        Checkpoints(tmp_path).save({"t": Stretch(torch.zeros(6), (5, 2), 0)}, 1)
    assert not files(tmp_path)
    with pytest.raises(CheckpointError, match=r"\[8, 14\) is not inside \(5, 2\)"):
        Stretch(torch.zeros(6), (5, 2), 8)


def test_another_architecture_is_named_by_its_tensor_and_nothing_is_changed(tmp_path: Path, sentence: Sentences):
    checkpoints = saved(tmp_path)
    found = zeros(numbers())
    renamed = {("model.v" if name == "model.w" else name): tensor for name, tensor in found.items()}
    with sentence.raises(CheckpointError, "model.v"):
        checkpoints.load(renamed)
    with sentence.raises(CheckpointError, "model.b"):
        checkpoints.load({**found, "model.b": torch.zeros(18).bfloat16()})
    with sentence.raises(CheckpointError, "model.b"):
        checkpoints.load({**found, "model.b": torch.zeros(17)})
    less = {name: tensor for name, tensor in found.items() if name != "optimizer.step"}
    with pytest.raises(CheckpointError, match=r"also has `optimizer\.step`"):
        checkpoints.load(less)
    assert same(found, zeros(found))
    checkpoints.load(less, partial=True)
    assert torch.equal(less["model.w"], numbers(1)["model.w"])


def test_a_damaged_or_missing_file_is_named_and_nothing_is_changed(tmp_path: Path, sentence: Sentences):
    checkpoints = saved(tmp_path)
    (shard,) = (tmp_path / "step-00000001").glob("*.distcp")
    whole = shard.read_bytes()
    entry = json.loads((tmp_path / "step-00000001" / "manifest.json").read_text())["pieces"]
    at = next(piece["start"] for piece in entry if piece["tensor"] == "optimizer.step")
    found = zeros(numbers())
    shard.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with sentence.raises(CheckpointError, "optimizer.step", shard):
        checkpoints.load(found)
    shard.write_bytes(whole[:-1])
    with sentence.raises(CheckpointError, shard):
        checkpoints.load(found)
    shard.unlink()
    with pytest.raises(CheckpointError, match=f"{shard} is missing"):
        checkpoints.load(found)
    assert same(found, zeros(found))


def test_a_failed_save_is_raised_by_the_next_call_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
):
    checkpoints = saved(tmp_path)
    before = files(tmp_path)

    def full(file: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    checkpoints.save(numbers(2), 2)
    with sentence.raises(CheckpointError, tmp_path):
        checkpoints.latest()
    assert files(tmp_path) == before
    monkeypatch.undo()
    checkpoints.save(numbers(2), 2, blocking=True)
    assert checkpoints.latest() == 2


def test_a_state_or_extra_that_cannot_be_kept_is_refused_by_name(tmp_path: Path, sentence: Sentences):
    checkpoints = Checkpoints(tmp_path)
    with sentence.raises(CheckpointError, "`lr`", hint="extra"):
        checkpoints.save({"lr": 0.1}, 1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(CheckpointError, match="The step is -1"):
        checkpoints.save(numbers(), -1)
    with sentence.raises(CheckpointError, "`extra`"):
        checkpoints.save(numbers(), 1, {"seed": torch.ones(1)})
    assert not files(tmp_path)


def test_views_and_parameters_are_saved_and_filled_in_place(tmp_path: Path):
    layer = torch.nn.Linear(30, 20)
    flat = torch.arange(100.0)
    state = {"p": layer.weight, "turned": layer.weight.T, "view": flat[10:50].view(4, 10)[:, 2:7]}
    expected = {name: tensor.detach().clone() for name, tensor in state.items()}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(state, 1)
        checkpoints.wait()
        with torch.no_grad():
            layer.weight.zero_()
            flat.zero_()
        checkpoints.load({name: state[name] for name in state})
    assert all(torch.equal(state[name], expected[name]) for name in state)
    assert float(flat[:12].abs().sum()) == 0


def test_any_place_that_fsspec_reaches_will_do(sentence: Sentences):
    files = fsspec.filesystem("memory")
    with Checkpoints("memory://training/run", keep=1, filesystem=files) as checkpoints:
        for step in (1, 2):
            checkpoints.save(numbers(step), step, {"step": step})
        found = zeros(numbers())
        assert checkpoints.load(found) == {"step": 2} and same(found, numbers(2))
        names = files.find("/training/run")
        assert {name.split("/")[3] for name in names} == {"step-00000002"} and len(names) == 3
        (shard,) = (name for name in names if name.endswith(".distcp"))
        content = files.cat_file(shard)
        files.pipe_file(shard, content[:500_000] + b"!" + content[500_001:])
        with sentence.raises(CheckpointError, "model.w"):
            checkpoints.load(found)
        files.rm_file(shard)
        with pytest.raises(CheckpointError, match=r"memory://training/run/.*distcp is missing"):
            checkpoints.load(found)
        assert same(found, numbers(2))


def commit_together(place: Path, number: int, ready: Any, told: Any) -> None:
    """Saves step 1, its commit held back until the other process has come as far."""
    put_once = LocalStore.put_once

    class Meeting(LocalStore):
        def put_once(self, name: str, data: bytes) -> bool:
            ready.wait(30)
            return put_once(self, name, data)

    torch.set_num_threads(1)
    checkpoints = Checkpoints(place)
    checkpoints.store = Meeting(place)
    try:
        checkpoints.save(numbers(number), 1, {"number": number}, blocking=True)
        told.put((number, ""))
    except CheckpointError as error:
        told.put((number, str(error)))


def test_of_two_processes_that_save_one_step_one_has_it_whole_and_the_other_is_told(tmp_path: Path):
    fork = multiprocessing.get_context("fork")
    ready, told = fork.Barrier(2), fork.Queue()
    both = [fork.Process(target=commit_together, args=(tmp_path, number, ready, told)) for number in (1, 2)]
    for process in both:
        process.start()
    answers = dict(told.get(timeout=60) for _ in both)
    for process in both:
        process.join()
    (winner,) = (number for number, error in answers.items() if not error)
    assert re.search("is already there|is not there as it was written", answers[3 - winner])
    found = zeros(numbers())
    assert Checkpoints(tmp_path).load(found) == {"number": winner} and same(found, numbers(winner))
    assert verify(open_store(tmp_path)).ok
    again = zeros(numbers())
    dcp.load(again, checkpoint_id=tmp_path / "step-00000001", no_dist=True)
    assert same(again, numbers(winner))
