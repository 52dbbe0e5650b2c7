"""`flywheel pretrain train`: a base from the lake's pages is registered and acts; what cannot work is refused."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from learning.algorithms.method import Schedule
from learning.engines.choice import check_training
from models.policy import Context
from models.random_vlm import build_random
from models.vlm import VlmPolicy
from schemas.config import Config, config_of
from schemas.config.training import PretrainConfig, TrainConfig
from schemas.failure import CheckpointError, UsageError
from schemas.observation import Observation
from schemas.tables.policy import TrainingStep
from storage.lake import Lake
from tasks.pretrain.train import check_base, earlier_trainings, order_of
from tasks.shared.policies import champion_if_any, policy_row
from tests.command import Call
from tests.drawn import POLICY, SETTINGS, drawn, parent, screenshots

KEYS = [f"train.pretrain.{name}={value}" for name, value in SETTINGS.model_dump(exclude_defaults=True).items()]


SUITE = {"suite": {"tasks": ["click-test"]}}


def lake_of(
    folder: Path, splits: Sequence[Any] = ("train", "validation", "test"), size: tuple[int, int] = (160, 210)
) -> Config:
    config = config_of({**SUITE, "lake": {"uri": str(folder / "lake")}, "train": {"processes": 1, "shift": 4}})
    lake = Lake.open(config.lake)
    for split in splits:
        for seed in range(4):
            rows, pngs = drawn(seed, split, size)
            lake.append("screenshots", screenshots(pngs, size))
            lake.append("pages", rows)
    return config


def test_a_base_is_trained_registered_and_exported_and_it_acts(
    tmp_path: Path, flywheel: Call, forked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = lake_of(tmp_path)
    words = [f"lake.uri={tmp_path / 'lake'}", "train.processes=1", *KEYS]
    code, out, err = flywheel("pretrain", "train", *words, "--out", tmp_path / "base", "--json")
    assert code == 0, err
    found = json.loads(out)
    lake = Lake.open(config.lake)
    row = policy_row(lake, found["policy"])
    assert (row.policy_version, row.kind, row.method, row.parent) == ("base-0000", "pretrained", "pretrain", None)
    assert row.pins == {table: lake.versions()[table] for table in ("pages", "screenshots")}
    assert champion_if_any(lake) is None
    metrics = json.loads(row.metrics)
    assert metrics["screens"] == 8 and metrics["validation_screens"] == 4
    tensors = load_file(tmp_path / "base" / "model.safetensors")
    assert metrics["parameters"] == sum(tensor.numel() for tensor in tensors.values())
    assert 0 <= metrics["letters_right_11px"] <= 1 and {"pointing", "character_errors"} <= metrics.keys()
    assert lake.rows(TrainingStep, {"policy_version": "base-0000"})
    card = (tmp_path / "base" / "README.md").read_text()
    assert "8 screens of 4 generated pages" in card and "weights 0" in card and "| pointing |" in card
    screen = Observation(next(iter(drawn(0)[1].values())), 96, 64, "")
    (reply,) = VlmPolicy(tmp_path / "base", POLICY).act([Context("Click it.", (), screen, 0)])
    assert isinstance(reply.text, str)

    assert check_training(TrainConfig(), str(tmp_path / "base")) == 2e-3  # as any trained small policy


def test_the_card_of_a_continued_base_lists_the_trainings_before(
    tmp_path: Path, flywheel: Call, forked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake_of(tmp_path)
    words = [f"lake.uri={tmp_path / 'lake'}", "train.processes=1", *KEYS]
    for number, folder in enumerate(("first", "second", "third")):
        given = [f"policy.base={tmp_path / ('first', 'second')[number - 1]}"] if number else []
        code, _, err = flywheel("pretrain", "train", *words, *given, f"seed={number}", "--out", tmp_path / folder)
        assert code == 0, err
    first, second, third = ((tmp_path / name / "README.md").read_text() for name in ("first", "second", "third"))
    assert "Trained before" not in first
    assert second.count("## Trained before") == third.count("## Trained before") == 1
    assert "### base-0000" in second and third.index("### base-0001") < third.index("### base-0000")
    assert third.count("| Seeds |") == 3 and third.rindex("weights 0") < third.index("## Limits")
    assert earlier_trainings(tmp_path / "nothing") == ""


@pytest.mark.parametrize(("splits", "problem"), [((), "no rendered pages"), (("train",), "split `validation`")])
def test_a_lake_without_pages_is_refused(tmp_path: Path, splits: Sequence[Any], problem: str) -> None:
    config = lake_of(tmp_path, splits)
    with pytest.raises(UsageError, match=problem) as refused:
        check_base(config, Lake.open(config.lake))
    assert "flywheel pretrain render" in refused.value.hint


def test_a_screen_larger_than_the_largest_is_refused_by_its_page(tmp_path: Path) -> None:
    config = lake_of(tmp_path, ("validation",))
    rows, _ = drawn(9, "train", (160, 210))
    Lake.open(config.lake).append("pages", [row.model_copy(update={"width": 2000}) for row in rows])
    with pytest.raises(UsageError, match="train-0009 is 2000x210"):
        check_base(config, Lake.open(config.lake))


def test_a_base_with_a_frozen_vision_tower_is_refused(tmp_path: Path) -> None:
    config = lake_of(tmp_path)
    memory = config.train.memory.model_copy(update={"freeze_vision": True})
    config = config.model_copy(update={"train": config.train.model_copy(update={"memory": memory})})
    with pytest.raises(UsageError, match=r"train\.memory\.freeze_vision"):
        check_base(config, Lake.open(config.lake))


def test_bases_that_are_another_model_or_miss_a_tensor_or_make_no_grid_are_refused(tmp_path: Path) -> None:
    config = lake_of(tmp_path)
    lake = Lake.open(config.lake)

    def with_base(folder: Path, **settings: int) -> Config:
        train = config.train.model_copy(update={"pretrain": PretrainConfig(**settings)})
        policy = config.policy.model_copy(update={"base": str(folder)})
        return config.model_copy(update={"policy": policy, "train": train})

    build_random("qwen2_5_vl", ["Click on the target."] * 8, 0, tmp_path / "other")
    with pytest.raises(CheckpointError, match="is not the small Qwen3-VL"):
        check_base(with_base(tmp_path / "other"), lake)
    whole = parent(tmp_path)
    check_base(with_base(whole), lake)
    with pytest.raises(UsageError, match="make no grid"):
        check_base(with_base(whole, crop_height=200, patch=8, merge=1, window=0, vision_hidden=64), lake)
    broken = Path(shutil.copytree(whole, tmp_path / "broken"))
    weights = load_file(broken / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight"):
        check_base(with_base(broken), lake)


def test_sizes_that_make_no_grid_or_too_large_a_policy_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="crop_width is 100, no multiple of patch x merge, 16"):
        config_of({**SUITE, "train": {"pretrain": {"crop_width": 100}}})
    with pytest.raises(UsageError, match="window is 40, no multiple of patch x merge, 16: take 32"):
        config_of({**SUITE, "train": {"pretrain": {"window": 40}}})
    with pytest.raises(UsageError, match=r"window is 0 and patch is 4.*take patch=16, merge=1 and vision_hidden=128"):
        config_of({**SUITE, "train": {"pretrain": {"window": 0}}})
    with pytest.raises(UsageError, match="vision_hidden is 32, and without window it is a multiple of 64: take 64"):
        config_of({**SUITE, "train": {"pretrain": {"window": 0, "patch": 16, "merge": 1}}})
    with pytest.raises(UsageError, match="patch x merge is 4, no multiple of 8"):
        config_of({**SUITE, "train": {"pretrain": {"merge": 1}}})
    with pytest.raises(UsageError, match="lower letters_steps"):
        config_of({**SUITE, "train": {"pretrain": {"steps": 10, "letters_steps": 10}}})
    config = lake_of(tmp_path)
    large = config.train.model_copy(update={"pretrain": PretrainConfig(hidden=640)})
    with pytest.raises(UsageError, match="a base has at most 8,000,000"):
        check_base(config.model_copy(update={"train": large}), Lake.open(config.lake))


def test_iterations_do_not_train_by_the_method_of_bases(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rendered pages") as refused:
        check_training(TrainConfig(method="pretrain"), "tiny")
    assert "flywheel pretrain train" in refused.value.hint


def test_the_pictures_of_a_step_have_one_size_and_every_screen_comes_equally_often() -> None:
    settings = PretrainConfig(steps=40, letters_steps=1, batch=4, crop_width=96, crop_height=64, whole_share=0.25)
    schedule = Schedule(40, 1e-3, TrainConfig())
    sizes = [(96, 64)] * 8 + [(200, 160)] * 8 + [(300, 160)] * 4 + [(90, 60)] * 4
    order = order_of(sizes, settings, schedule, 0)
    assert order == order_of(sizes, settings, schedule, 0) != order_of(sizes, settings, schedule, 1)
    steps = [order[at : at + 4] for at in range(0, 160, 4)]
    for number, step in enumerate(steps):
        shown = [sizes[one] if number >= 30 else tuple(map(min, sizes[one], (96, 64))) for one in step]
        assert len({*shown}) == 1
    counts = [order[:120].count(number) for number in range(24)]
    assert max(counts) - min(counts) <= 1
