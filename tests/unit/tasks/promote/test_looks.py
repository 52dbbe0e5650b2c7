"""Measuring stops at the look that decides, and goes on to the last seed for who is promoted."""

from pathlib import Path

import pytest

from schemas.config import Config, config_of
from schemas.tables.evaluation import Evaluation
from storage.lake import Lake
from tasks.evaluate import explorer_policy, measure_suites
from tasks.promote.contest import interim_looks


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    return config_of(
        {
            "lake": {"uri": str(tmp_path / "lake"), "min_free_mb": 1},
            "environments": {"fake": {"sandboxes": 4}},
            "suite": {"tasks": ["click-target", "two-steps"], "held_out": ["enter-text"]},
            "evaluate": {"seeds": 5, "held_out_seeds": 2},
            "promote": {"look_seeds": 2},
        }
    )


def seeds_of(lake: Lake) -> list[int]:
    rows = lake.rows(Evaluation, {"suite": "suite", "task_id": "fake/click-target"})
    return sorted(row.seed - 1_000_000 for row in rows)


def test_there_is_a_look_after_every_few_seeds_and_after_the_last(config: Config) -> None:
    assert interim_looks(config) == [2, 4, 5]
    short = config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"seeds": 2})})
    assert interim_looks(short) == [2]


def test_measuring_stops_where_it_is_decided_and_the_held_out_tasks_are_measured_all_the_same(config: Config) -> None:
    lake, asked = Lake.open(config.lake), list[int]()

    def enough(seeds: int) -> int | None:
        asked.append(seeds)
        return seeds if seeds == 4 else None

    found = measure_suites(config, lake, explorer_policy(config), 0, enough)
    assert (asked, seeds_of(lake)) == ([2, 4], [0, 1, 2, 3])
    assert found.held_out.tasks["fake/enter-text"].n == 2
    rows = lake.rows(Evaluation)
    assert all(row.unparsable is False and row.think_ms is not None for row in rows if row.success is not None)
    assert {len(row.final_phash or "") for row in rows} == {0, 128}


def test_who_is_promoted_early_is_measured_to_the_last_seed(config: Config) -> None:
    lake = Lake.open(config.lake)
    measure_suites(config, lake, explorer_policy(config), 0, lambda _: config.evaluate.seeds)
    assert seeds_of(lake) == [0, 1, 2, 3, 4]
