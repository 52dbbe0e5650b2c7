"""The stage that thinks: in order, by whom the config names, and nobody is asked twice, whenever it is killed."""

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from models.thinkers.thinker import Thinker, ThinkerCase, ThinkerThought
from schemas.config import Config, config_of
from schemas.config.section import Section
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.collect.collect import collect_trajectories
from tasks.curriculum import choose_tasks
from tasks.filter import filter_trajectories
from tasks.prepare import prepare_lake
from tasks.running.run import Run, open_run, run_of
from tasks.think import think as stage
from tasks.think.think import ThoughtReport, think, think_again

ME = "tests.unit.tasks.test_think:Recalling"


class Recalling(Thinker[Section]):
    """Says how many thoughts were before; of every third case nothing; may die."""

    author, version, asks_model = "recall", "1", True
    asked: ClassVar[Counter[tuple[str, int, int]]] = Counter()
    dies_after = 10**9

    def think(self, cases: Sequence[ThinkerCase], draw: int) -> list[ThinkerThought]:
        if sum(self.asked.values()) >= Recalling.dies_after:
            raise KeyboardInterrupt
        made = []
        for case in cases:
            before = [turn.thought for turn in case.context.turns]
            self.asked[case.context.instruction, case.context.seed, draw] += 1
            made.append(ThinkerThought("" if case.context.seed % 3 == 0 else f"After {before}.", tokens=2))
        return made


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Recalling.asked.clear()
    Recalling.dies_after = 10**9


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake in which the explorer collected, and the filter decided."""
    folder = tmp_path_factory.mktemp("collected")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLYWHEEL_HOME", str(folder / "home"))
        config = wheel(folder)
        with open_run(config):
            prepare_lake.fn(config, -1)
            for one in (choose_tasks, collect_trajectories, filter_trajectories):
                one.fn(config, 0)
    return folder / "lake"


@pytest.fixture
def lake(collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(stage, "TOGETHER", 4)
    shutil.copytree(collected, tmp_path / "lake")
    return tmp_path


def wheel(folder: Path, **chosen: object) -> Config:
    return config_of(
        {
            "lake": {"uri": str(folder / "lake"), "min_free_mb": 10},
            "environments": {"fake": {"sandboxes": 4}},
            "suite": {"tasks": ["click-target", "two-steps"], "held_out": []},
            "collect": {"trajectories_per_task": 24},
            "policy": {"hidden": 32, "layers": 1, "vision_hidden": 64, "vision_layers": 1, "max_new_tokens": 4},
            "evaluate": {"seeds": 1, "held_out_seeds": 0, "explorer_seeds": 1, "untrained_seeds": 1},
            "think": chosen,
        }
    )


def thought(run: Run) -> ThoughtReport:
    done = think(run, 0)
    assert isinstance(done, ThoughtReport)
    return done


def rows(lake: Lake, table: str = "annotations") -> list[dict[str, Any]]:
    where = {"kind": "thought"} if table == "annotations" else None
    return sorted(lake.read(table, where=where).to_pylist(), key=lambda one: (one["trajectory_id"], one["step"]))


@pytest.mark.slow
def test_the_first_thinker_whose_thought_is_kept_writes_it_and_its_thoughts_are_before_the_next_step(
    lake: Path,
) -> None:
    config = wheel(lake, thinkers=[ME, "rules", "template"], tries=2)
    run = run_of(config)
    done = thought(run)
    found = rows(run.lake)
    assert {one["author"] for one in found} == {"recall", "rules"} == set(done.thoughts)
    assert any(one["thought"] == "After []." for one in found) and any("After ['" in one["thought"] for one in found)
    assert any(one["patterns"] == ["task_decomposition"] for one in found if one["author"] == "rules")
    tried = rows(run.lake, "thinking")
    assert {one["tries"] for one in tried if not one["kept"]} == {2} and done.turned_away["empty"] > 0
    assert sum(one.asked for one in done.kept_by_step) == len(tried) and done.tokens == 2 * done.tries
    assert len({(one["trajectory_id"], one["step"]) for one in found}) == len(found) == len(tried)


def test_a_stage_that_is_killed_goes_on_and_asks_nobody_again_of_what_was_written(lake: Path) -> None:
    whole, cut = lake, lake / "cut"
    shutil.copytree(lake / "lake", cut / "lake")
    config = wheel(whole, thinkers=[ME, "template"])
    expected = thought(run_of(config))
    asked = dict(Recalling.asked)
    Recalling.asked.clear()
    config = wheel(cut, thinkers=[ME, "template"])
    Recalling.dies_after = len(asked) // 2
    with pytest.raises(KeyboardInterrupt):
        think(run_of(config), 0)
    Recalling.dies_after = 10**9
    kept = run_of(config).lake.count("thinking")
    assert 0 < kept < sum(one.asked for one in expected.kept_by_step)
    again = thought(run_of(config))
    assert again.model_copy(update={"seconds": 0}) == expected.model_copy(update={"seconds": 0})
    strip = lambda found: [{**one, "created_at": None} for one in found]  # noqa: E731
    assert strip(rows(run_of(config).lake)) == strip(rows(run_of(wheel(whole)).lake))
    third = thought(run_of(config))
    assert third.tries == again.tries


def test_a_limit_leaves_the_rest_to_the_next_thinker(lake: Path) -> None:
    done = thought(run_of(wheel(lake, thinkers=[ME, "template"], most=3)))
    assert done.tries == 3 and done.unasked > 0 and done.thoughts["template"] > 0


def test_stored_trajectories_get_thoughts_of_other_thinkers_later_and_a_persons_stays(lake: Path) -> None:
    config = wheel(lake)
    run = run_of(config)
    think(run, 0)
    first = rows(run.lake)[0]
    run.lake.append("annotations", [{**first, "annotation_id": "a", "author": "ada", "thought": "Because."}])
    done = think_again(wheel(lake, thinkers=["rules"]), run.lake, None)
    assert done.thoughts["rules"] == done.thoughts["template"] - 1
    assert not [one for one in rows(run.lake) if one["author"] == "rules" and one["step"] == first["step"]
                and one["trajectory_id"] == first["trajectory_id"]]  # fmt: skip
    with pytest.raises(UsageError, match="--iterations"):
        think_again(config, run.lake, (5, 6))
    with pytest.raises(UsageError, match=r"think\.thinkers"):
        think_again(wheel(lake, thinkers=[]), run.lake, None)
