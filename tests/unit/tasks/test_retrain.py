"""Retraining from a stored config: what never had an effect is reset, so that what made a policy still makes it."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.random_vlm import build_random
from schemas.config import Config, config_of
from schemas.config.training import TrainConfig
from schemas.failure import LakeError, UsageError
from schemas.table import utc_now
from schemas.tables.policy import PolicyVersion
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tasks.retrain import pin_data
from tests.fixtures.sentences import Sentences
from tests.unit.learning.samples import parent


def trained(folder: Path, base: Path, **train: Any) -> Config:
    """A lake whose second policy was trained with these settings."""
    lake_at = {"uri": str(folder / "lake"), "min_free_mb": 10}
    config = config_of({"environments": {"fake": {}}, "suite": {"tasks": ["click-one"]}, "lake": lake_at})
    lake = Lake.open(config.lake)
    made_by = config_of(config.model_dump() | {"policy": {"base": str(base)}, "train": train})
    checkpoint = lake.blobs.put_directory(base, "checkpoints/first")
    common: dict[str, Any] = {
        "iteration": 0, "method": "sft", "code": "c", "seed": 0, "metrics": "{}", "created_at": utc_now(),
        "config": made_by.canonical(), "checkpoint": checkpoint,
    }  # fmt: skip
    first = PolicyVersion(
        policy_version="first", kind="initial", parent=None, data_versions="{}", status="champion", **common
    )
    second = PolicyVersion(
        policy_version="second", kind="iteration", parent="first", data_versions='{"policies":1}', status="candidate",
        **common,
    )  # fmt: skip
    lake.append("policies", [first, second])
    return config


@pytest.mark.parametrize(
    ("small", "vain", "real"),
    [
        (False, {"grounding": 1, "words": 0.5, "steps_first": 30}, {"steps": 7, "token_cap": 512}),
        (True, {"token_cap": 512, "activation_checkpointing": True}, {"steps": 7, "grounding": 1}),
    ],
)
def test_a_stored_training_is_repeated_without_what_its_model_never_read(
    small: bool, vain: dict[str, Any], real: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    base = parent(tmp_path) if small else tmp_path / "base"
    if not small:
        build_random("qwen3_vl", ["Click."] * 8, 0, base)
    config = trained(tmp_path, base, **vain, **real)
    pinned = pin_data.fn(config, "second")
    again, recipe = config_of(json.loads(pinned.config)), pinned.recipe
    assert again.train == TrainConfig.model_validate(real)
    assert (recipe.parent, recipe.pins, recipe.version) == ("first", {"policies": 1}, "retrained-0000")


def test_what_a_policy_was_made_from_and_is_gone_is_named_by_table_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    config = trained(tmp_path, parent(tmp_path))
    lake = Lake.open(config.lake)
    rows = lake.read("policies", where={"policy_version": "second"}).to_pylist()
    lake.upsert("policies", [{**row, "data_versions": '{"policies":1,"steps":4}'} for row in rows])
    with sentence.raises(LakeError, hint="--like"):
        pin_data.fn(config, "second")


def test_a_policy_that_was_not_trained_cannot_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    with sentence.raises(UsageError):
        pin_data.fn(trained(tmp_path, parent(tmp_path)), "first")


def test_today_s_data_are_not_retrained_from_under_the_config_of_another_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    base = parent(tmp_path)
    config = trained(tmp_path, base)
    other = config_of(config.model_dump() | {"policy": {"base": str(base), "dialect": "point"}})
    with pytest.raises(UsageError, match=r"policy\.dialect=point.*first"):
        pin_data.fn(other, None)


def test_a_task_that_the_lake_has_data_of_cannot_be_held_out_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    base = parent(tmp_path)
    config = config_of(trained(tmp_path, base).model_dump() | {"policy": {"base": str(base)}})
    one = Trajectory(
        trajectory_id="t", iteration=0, run_id="r", task_id="fake/two-steps", seed=0, split="train", attempt=0,
        policy="explorer", policy_version="explorer-1", instruction="Click.", n_steps=1, reward=1.0, success=True,
        termination="done", sampling="{}", started_at=utc_now(), wall_s=1.0,
    )  # fmt: skip
    Lake.open(config.lake).append("trajectories", [one])
    held = config.model_copy(update={"suite": config.suite.model_copy(update={"held_out": ["two-steps"]})})
    with sentence.raises(UsageError, "suite.held_out", "fake/two-steps", hint="lake.uri"):
        pin_data.fn(held, None)
    pin_data.fn(config, None)
