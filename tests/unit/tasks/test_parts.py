"""Stages whose parts other machines do: the same rows as where one machine does all, and what models cost is counted.

Ray itself is in `tests/flows/test_cluster_flow.py`; here parts are done in this process, so nothing waits for it.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prefect import Task

import tasks.annotate
import tasks.judge
import tasks.think.think
from models.judges.judge import Judge, JudgeCase, Judgement
from models.serving.openai import charge, charged, charged_since
from schemas.config import Config
from schemas.config.curating import JudgeConfig
from schemas.config.operations import ClusterConfig
from schemas.config.section import Section
from schemas.table import utc_now
from storage.lake import Lake
from tasks.annotate import perception_of
from tasks.filter import decide_routes
from tasks.judge import judge_again
from tasks.running.cluster import divided, part_task, shares_out
from tasks.running.run import run_of
from tests.unit.tasks.test_perceive import CountingReader, chosen
from tests.unit.tasks.test_perceive import config as config
from tests.unit.tasks.test_think import ME, collected, rows, thought, wheel

__all__ = ["collected"]


class Counting(Judge[Section]):
    """Likes long trajectories, and says what it cost."""

    name = "counting-1"

    def _score(self, case: JudgeCase) -> Judgement:
        charge("judge", 10)
        return Judgement(min(1.0, len(case.replies) / 3), f"{len(case.replies)} replies", 10)


def here(config: Config, work: Task[..., Any], parts: Sequence[dict[str, Any]], label: str) -> list[Any]:
    """`share_out` without other machines."""
    return [work.fn(**part).made for part in parts]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tasks.judge, tasks.annotate, tasks.think.think):
        monkeypatch.setattr(module, "share_out", here)


@pytest.fixture
def lakes(collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: None) -> tuple[Path, Path]:
    """Two folders with the same lake: for one machine and for several."""
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    for name in ("one", "several"):
        shutil.copytree(collected, tmp_path / name / "lake")
    return tmp_path / "one", tmp_path / "several"


def by_several(config: Config) -> Config:
    return config.model_copy(update={"cluster": ClusterConfig(kind="ray", parts=3)})


def without_times(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name not in ("created_at", "seconds")} for one in found]


@pytest.mark.slow
def test_thinking_in_parts_gives_the_same_thoughts(lakes: tuple[Path, Path]) -> None:
    chosen = {"thinkers": [ME, "template"], "tries": 2}
    runs = run_of(wheel(lakes[0], **chosen)), run_of(by_several(wheel(lakes[1], **chosen)))
    done = [thought(run) for run in runs]
    assert done[0].model_copy(update={"seconds": 0}) == done[1].model_copy(update={"seconds": 0}) and done[0].tries > 0
    for table in ("annotations", "thinking"):
        one, several = (without_times(rows(run.lake, table)) for run in runs)
        assert one == several


def test_parts_together_ask_no_more_often_than_a_stage_may(lakes: tuple[Path, Path]) -> None:
    done = thought(run_of(by_several(wheel(lakes[1], thinkers=[ME, "template"], most=4))))
    assert done.tries == 4 and done.unasked > 0


def test_judging_in_parts_gives_the_same_verdicts_and_the_same_report(lakes: tuple[Path, Path]) -> None:
    judge = JudgeConfig(kind=f"{__name__}:Counting", audit=5)
    configs = [wheel(folder).model_copy(update={"judge": judge}) for folder in lakes]
    configs[1] = by_several(configs[1])
    before = charged()
    reports = [judge_again(config, Lake.open(config.lake), None) for config in configs]
    assert charged_since(before)["judge"] == 20 * reports[0].judged > 0
    one, several = (replace(report, seconds_per_trajectory=0.0) for report in reports)
    assert one == several
    assert verdicts(configs[0]) == verdicts(configs[1])


def test_the_filter_has_the_audited_trajectories_judged_in_parts(lakes: tuple[Path, Path]) -> None:
    judge = JudgeConfig(kind=f"{__name__}:Counting", audit=5)
    configs = [wheel(folder).model_copy(update={"judge": judge}) for folder in lakes]
    done = [decide_routes(run_of(one), 0) for one in (configs[0], by_several(configs[1]))]
    assert done[0] == done[1]
    one, several = (verdicts(config) for config in configs)
    assert one == several and sum(row["gate"] == "judge" for row in one) == 5


def verdicts(config: Config) -> list[dict[str, Any]]:
    rows = without_times(Lake.open(config.lake).read("verdicts").to_pylist())
    return sorted(rows, key=lambda one: (one["trajectory_id"], one["gate"], one["gate_version"]))


def test_pictures_are_read_in_parts_each_once(config: Config, shared: None) -> None:
    lake = Lake.open(config.lake)
    asked = chosen(lake, 5)
    found = perception_of(by_several(config), lake, asked, utc_now())
    assert {one.author for one in found if one.kind == "grounding"} == {"ocr"}
    assert sorted(CountingReader.seen) == sorted(asked.steps) and lake.count("readings") == 5


def test_a_part_says_what_models_were_asked_for_in_it() -> None:
    @part_task("some-part")
    def work(tokens: int) -> str:
        charge("judge", tokens)
        return "made"

    done = work.fn(7)
    assert done.made == "made" and dict(done.charged) == {"judge": 7}


def test_names_are_divided_into_as_many_parts_as_there_are_names_for(config: Config) -> None:
    assert not shares_out(config) and shares_out(by_several(config))
    assert divided(by_several(config), list("abcde")) == [["a", "d"], ["b", "e"], ["c"]]
    assert divided(by_several(config), ["a"]) == [["a"]]
