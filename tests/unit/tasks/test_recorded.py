"""What a training measures rests in the lake as it is heard, and a start that goes on makes its steps once."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from learning.job import TrainerReport
from learning.tracking import Point, Tracker
from schemas.config import Config, config_of
from schemas.config.section import Section
from schemas.tables.policy import TrainingStep
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe
from tasks.train.recorded import Recorder

RECIPE = PolicyRecipe("policy-0001", "policy-0000", 1, {})
HERE = "tests.unit.tasks.test_recorded"


class Heard(Tracker[Section]):
    """Keeps what it receives of every training."""

    received: ClassVar[list[object]] = []

    def start(self, resumed: int) -> None:
        Heard.received += [self.training.policy, self.training.config["name"], resumed]

    def log(self, points: Sequence[Point]) -> None:
        Heard.received += [(point.step, point.measures["kl"]) for point in points]

    def finish(self, whole: bool) -> None:
        Heard.received.append(whole)


class Broken(Heard):
    """Cannot begin."""

    def start(self, resumed: int) -> None:
        raise OSError("the disk is full")


def config(tmp_path: Path, *trackers: str) -> Config:
    lake = {"uri": str(tmp_path / "lake"), "min_free_mb": 1}
    return config_of({"lake": lake, "suite": {"tasks": ["click-test"]}, "tracking": {"trackers": trackers}})


def point(step: int, loss: float) -> TrainerReport:
    measures = {"kl": 0.01 * step, "grad_norm": 2.0, "margin": 0.3}
    return TrainerReport(step=step, steps=9, loss=loss, samples_per_s=4.0, measures=measures)


def rows(lake: Lake) -> list[TrainingStep]:
    return sorted(lake.rows(TrainingStep), key=lambda row: row.step)


def test_known_measures_have_columns_and_a_methods_own_are_kept_beside_them(tmp_path: Path) -> None:
    lake = Lake.open(config(tmp_path).lake)
    with Recorder(config(tmp_path), lake, RECIPE) as recorder:
        recorder.hear(TrainerReport(processes=1))
        recorder.hear(point(1, 0.5))
        assert not rows(lake)
    (row,) = rows(lake)
    assert (row.policy_version, row.iteration, row.step, row.loss) == ("policy-0001", 1, 1, 0.5)
    assert (row.kl, row.grad_norm, row.samples_per_s, row.mfu, row.entropy) == (0.01, 2.0, 4.0, None, None)
    assert json.loads(row.other) == {"margin": 0.3}


def test_points_are_there_while_the_training_goes_on(tmp_path: Path) -> None:
    lake = Lake.open(config(tmp_path).lake)
    with Recorder(config(tmp_path), lake, RECIPE, every_s=0.0) as recorder:
        recorder.hear(point(1, 0.5))
        assert [row.step for row in rows(lake)] == [1]


def test_a_training_that_fails_leaves_its_points_and_a_start_that_goes_on_makes_the_later_ones_again(
    tmp_path: Path,
) -> None:
    lake = Lake.open(config(tmp_path).lake)
    other = PolicyRecipe("policy-0002", "policy-0000", 2, {})
    with Recorder(config(tmp_path), lake, other) as recorder:
        recorder.hear(point(5, 0.7))
    with pytest.raises(RuntimeError, match="died"), Recorder(config(tmp_path), lake, RECIPE) as recorder:
        for step in (1, 2, 3, 4):
            recorder.hear(point(step, 1.0))
        raise RuntimeError("died")
    assert [row.step for row in rows(lake)] == [1, 2, 3, 4, 5]
    with Recorder(config(tmp_path), lake, RECIPE) as recorder:
        recorder.hear(TrainerReport(resumed=2, steps=3))
        recorder.hear(point(3, 0.5))
    found = [(row.step, row.loss) for row in rows(lake) if row.policy_version == "policy-0001"]
    assert found == [(1, 1.0), (2, 1.0), (3, 0.5)]
    assert [row.step for row in rows(lake) if row.policy_version == "policy-0002"] == [5]


def test_a_training_that_was_whole_already_changes_nothing(tmp_path: Path) -> None:
    lake = Lake.open(config(tmp_path).lake)
    with Recorder(config(tmp_path), lake, RECIPE) as recorder:
        recorder.hear(point(1, 0.5))
    version = lake.version("training_steps")
    with Recorder(config(tmp_path, f"{HERE}:Broken"), lake, RECIPE) as recorder:
        recorder.hear(TrainerReport(checkpoint="there"))
    assert lake.version("training_steps") == version


def test_trackers_are_told_and_one_that_fails_is_named_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Heard.received.clear()
    wanted = config(tmp_path, f"{HERE}:Broken", f"{HERE}:Heard")
    lake = Lake.open(wanted.lake)
    with Recorder(wanted, lake, RECIPE) as recorder:
        recorder.hear(TrainerReport(resumed=1, steps=3))
        for step in (2, 3):
            recorder.hear(point(step, 0.5))
    assert Heard.received == ["policy-0001", "laptop", 1, (2, 0.02), (3, 0.03), True]
    assert [row.step for row in rows(lake)] == [2, 3]
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.count("the disk is full") == 1 and f"tracker {HERE}:Broken: OSError" in shown
