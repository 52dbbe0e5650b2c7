"""The wheel trains its own judge from a lake, keeps it there, and judges with it what it never saw."""

import tracemalloc
from pathlib import Path

import pytest

import tasks.judge_training
from environments.catalog import catalog
from learning.judging import Effort
from schemas.config import config_of
from schemas.failure import UsageError
from tasks.judge import judge_again
from tasks.judge_training import part_of, read_split, train_judge
from tests.fixtures.lake import make_small_lake


@pytest.mark.slow
def test_a_judge_is_trained_kept_in_the_lake_fetched_again_and_asked_about_other_pages_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    lake = make_small_lake(tmp_path / "lake", trajectories=140)
    fields = {
        "lake": {"uri": str(tmp_path / "lake")},
        "environments": {"fake": {}},
        "suite": {"tasks": ["click-target", "two-steps", "enter-text"]},
    }
    config = config_of(fields)
    lake.append("tasks", catalog(config))
    made = train_judge(config, lake, "first", None, Effort(reading_steps=2, epochs=1, batch=16, readings=8))
    assert made.test.n > 0 and made.test.train > 100
    assert train_judge(config, lake, "first", None) == made
    keys = dict(one.split("=", 1) for one in made.config)
    options = {"checkpoint": keys["judge.options.checkpoint"]}
    local = config_of(fields | {"judge": {"kind": "local", "options": options, "threshold": made.threshold}})
    report = judge_again(local, lake, None)
    pages = lake.read("trajectories", ["task_id", "seed"]).to_pylist()
    unseen = [one for one in pages if part_of(f"{one['task_id']} {one['seed']}") == "test"]
    assert report.judge.startswith(made.judge) and report.against["verifier"].n == len(unseen)
    assert report.judged == len(unseen) == made.test.n
    with pytest.raises(UsageError, match="too few"):
        train_judge(config, lake, "second", (5, 6))
    with pytest.raises(UsageError, match="not the name"):
        train_judge(config, lake, "../up", None)


@pytest.mark.nightly
def test_while_a_lake_is_read_no_more_of_a_trajectory_stays_in_memory_than_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks.judge_training, "TOGETHER", 16)
    peaks, sizes = list[int](), list[int]()
    for count in (30, 30, 180):  # the first time, modules and caches are filled
        lake = make_small_lake(tmp_path / f"lake-{len(peaks)}", trajectories=count)
        config = config_of({"lake": {"uri": lake.uri}, "environments": {"fake": {}}, "suite": {"tasks": ["click-one"]}})
        tracemalloc.start()
        split = read_split(config, lake, None, tmp_path / f"work-{len(peaks)}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        sizes.append(sum(len(one) for one in split.parts.values()))
        assert len(split.points) > sizes[-1]
    each = (peaks[2] - peaks[1]) / (sizes[2] - sizes[1])
    assert sizes[2] > 400 and each < 10_000, (peaks, sizes)  # its arrays and pictures have 50,000
