"""Interpolated policies: exact at the corners, linear between, and refused where they do not fit together."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from learning.algorithms.merging import check_alike, grid, interpolate, merge_checkpoints
from schemas.failure import CheckpointError, UsageError


def state(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(3, 4, generator=generator).bfloat16() for name in ("a", "b")}


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    made = []
    for seed in range(2):
        folder = tmp_path / f"policy-{seed}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": "x", "transformers_version": str(seed)}))
        (folder / "tokenizer.json").write_text("{}")
        (folder / "job.json").write_text("{}")
        save_file(state(seed), folder / "model.safetensors")
        made.append(folder)
    return made


def test_a_weight_of_1_gives_that_policy_bit_for_bit() -> None:
    states = [state(seed) for seed in range(3)]
    for at, one in enumerate(states):
        found = interpolate(states, [float(at == other) for other in range(3)])
        assert all(torch.equal(found[name], one[name]) for name in one)


def test_a_linear_layer_of_merged_weights_answers_the_weighted_answer() -> None:
    states = [{"w": torch.randn(5, 3, dtype=torch.float64)} for _ in range(2)]
    x = torch.randn(7, 3, dtype=torch.float64)
    merged = interpolate(states, [0.3, 0.7])["w"]
    assert torch.allclose(x @ merged.T, 0.3 * x @ states[0]["w"].T + 0.7 * x @ states[1]["w"].T)


@pytest.mark.parametrize("shares", [[0.5, 0.6], [1.5, -0.5], [1.0], [0.2, 0.3, 0.5]])
def test_weights_that_are_no_mean_are_refused(shares: list[float]) -> None:
    with pytest.raises(UsageError, match="add up to 1"):
        interpolate([state(0), state(1)], shares)


def test_a_missing_tensor_and_another_shape_are_named() -> None:
    with pytest.raises(CheckpointError, match="'b'"):
        interpolate([state(0), {"a": state(1)["a"]}], [0.5, 0.5])
    with pytest.raises(CheckpointError, match=r"'a' is \(2, 2\)"):
        interpolate([state(0), {**state(1), "a": torch.zeros(2, 2)}], [0.5, 0.5])


def test_the_merged_checkpoint_has_the_other_files_of_the_first_but_its_job(
    folders: list[Path], tmp_path: Path
) -> None:
    merge_checkpoints(folders, [0.25, 0.75], tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "config.json",
        "model.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
    ]
    found = load_file(tmp_path / "out" / "model.safetensors")
    wanted = 0.25 * state(0)["a"].double() + 0.75 * state(1)["a"].double()
    assert torch.equal(found["a"], wanted.bfloat16())


def test_another_tokeniser_and_another_architecture_are_refused_and_nothing_is_written(
    folders: list[Path], tmp_path: Path
) -> None:
    (folders[1] / "tokenizer.json").write_text('{"other": 1}')
    with pytest.raises(CheckpointError, match="tokenisers"):
        merge_checkpoints(folders, [0.5, 0.5], tmp_path / "out")
    (folders[1] / "config.json").write_text('{"model_type": "y"}')
    with pytest.raises(CheckpointError, match="model_type"):
        check_alike(folders)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_there_is_not_overwritten(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="already there"):
        merge_checkpoints(folders, [0.5, 0.5], folders[1])


def test_a_checkpoint_without_weights_is_named(folders: list[Path], tmp_path: Path) -> None:
    (folders[1] / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="policy-1"):
        merge_checkpoints(folders, [0.5, 0.5], tmp_path / "out")
    shutil.rmtree(folders[1])


def test_the_grid_holds_every_corner_and_every_point_adds_up_to_1() -> None:
    points = grid(3, 4)
    assert len(points) == len(set(points)) == 15
    assert all(sum(point) == pytest.approx(1.0) for point in points)
    assert {(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)} <= set(points)
    assert grid(2, 2) == [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)]
