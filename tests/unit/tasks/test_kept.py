"""Evaluations keep trajectories for people to look at, and no part that makes training data reads them."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from apps.commands.forgetting import forget_trajectories
from apps.commands.lineage import lineage_of
from curation.converters.format import FORMATS
from environments.catalog import catalog
from flywheel import OpenLake
from schemas.config import Config, config_of
from schemas.failure import LakeError, UsageError
from schemas.tables.evaluation_trajectory import EvaluationStep, EvaluationTrajectory
from schemas.tables.task import GuiTask
from storage.catalog import FOLDER, ask
from storage.lake import Lake
from storage.upgrade import upgrade
from tasks.evaluate import explorer_policy, measure
from tasks.exchange.export import export_trajectories
from tasks.filter import decide
from tasks.shared.finding import Wanted, find
from tasks.shared.kept import is_kept
from tasks.shared.reviews import Draft, submit
from tasks.shared.trajectories import SeedsOf, steps_of, stored, trajectories_of, trajectory_of
from tasks.train.supervised import weighed_targets
from tests.fixtures.sentences import Sentences

SEEDS = range(1_000_000, 1_000_012)
READERS = {"found_trajectories", "found_decisions", "screenshot", "all_trajectories", "all_steps"}
"""The only queries that read the kept trajectories: they find and show them."""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    lake = {"uri": str(tmp_path / "lake"), "min_free_mb": 1}
    suite = {"tasks": ["click-target"], "held_out": ["two-steps"]}
    return config_of({"environments": {"fake": {}}, "suite": suite, "lake": lake})


@pytest.fixture
def lake(config: Config) -> Lake:
    lake = Lake.open(config.lake)
    lake.append("tasks", catalog(config))
    return lake


def with_shares(config: Config, failures: float, successes: float) -> Config:
    chosen = config.evaluate.model_copy(update={"keep_failures": failures, "keep_successes": successes})
    return config.model_copy(update={"evaluate": chosen})


def plans_of(config: Config) -> dict[str, SeedsOf]:
    tasks: dict[str, list[GuiTask]] = {"train": [], "held_out": []}
    for task in catalog(config):
        if task.split in tasks:
            tasks[task.split].append(task)
    return {"suite": [(one, SEEDS) for one in tasks["train"]], "held_out": [(one, SEEDS) for one in tasks["held_out"]]}


def evaluate(config: Config, lake: Lake, iteration: int = 0) -> None:
    measure(config, lake, explorer_policy(config), plans_of(config), iteration)


def kept(lake: Lake) -> list[EvaluationTrajectory]:
    return lake.rows(EvaluationTrajectory)


def test_all_failures_and_the_drawn_share_of_successes_are_kept_whole(config: Config, lake: Lake) -> None:
    config = with_shares(config, 1.0, 0.5)
    evaluate(config, lake)
    rows = lake.read("evaluations").to_pylist()
    failed = {(row["task_id"], row["seed"]) for row in rows if not row["success"]}
    mine = {(row.task_id, row.seed): row for row in kept(lake)}
    assert failed and failed == {key for key, row in mine.items() if not row.success}
    won = [row for row in mine.values() if row.success]
    assert 0 < len(won) < len(rows) - len(failed) and all(is_kept(config.evaluate, row) for row in won)
    assert {row.suite for row in mine.values()} == {"suite", "held_out"}
    for row in mine.values():
        steps = steps_of(lake, row)
        assert [one.step for one in steps] == list(range(row.n_steps)) and row.split == "validation"
        for digest in {picture for one in steps for picture in one.pictures}:
            assert ask(lake, "screenshot", sha256=digest, iteration=0).num_rows == 1


def test_a_kept_picture_has_the_pixels_that_the_policy_saw(config: Config, lake: Lake) -> None:
    from tasks.shared.kept import _packed  # pyright: ignore[reportPrivateUsage]

    evaluate(config, lake)
    (first, *_) = lake.read("evaluation_screenshots", ["picture"])["picture"].to_pylist()
    image = Image.open(io.BytesIO(first))
    png = io.BytesIO()
    image.save(png, "PNG")
    packed = Image.open(io.BytesIO(_packed(png.getvalue())))
    assert image.format == "WEBP" and packed.convert("RGB").tobytes() == image.convert("RGB").tobytes()
    large = io.BytesIO()
    Image.new("RGB", (16_384, 1)).save(large, "PNG")
    assert _packed(large.getvalue()) == large.getvalue()


@pytest.mark.parametrize(("failures", "successes"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)])
def test_the_shares_decide_what_is_kept_and_never_what_is_measured(
    config: Config, lake: Lake, failures: float, successes: float
) -> None:
    evaluate(with_shares(config, failures, successes), lake)
    rows = lake.read("evaluations").to_pylist()
    assert len(rows) == 2 * len(SEEDS)
    wanted = sum(bool(successes) if row["success"] else bool(failures) for row in rows)
    assert len(kept(lake)) == wanted
    assert bool(lake.count("evaluation_steps")) == bool(lake.count("evaluation_screenshots")) == bool(wanted)


def test_what_a_killed_evaluation_kept_is_replaced_by_the_whole_trajectory(
    config: Config, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Lake.append

    def killed(self: Lake, table: str, rows: object) -> int:
        if table == "evaluations":
            raise KeyboardInterrupt
        return append(self, table, rows)  # type: ignore[arg-type]

    config = with_shares(config, 1.0, 1.0)
    monkeypatch.setattr(Lake, "append", killed)
    with pytest.raises(KeyboardInterrupt):
        evaluate(config, lake)
    monkeypatch.undo()
    monkeypatch.setenv("FLYWHEEL_HOME", str(Path(lake.uri).parent / "home"))
    (one, *_) = kept(lake)
    step = steps_of(lake, one)[-1]
    lake.append("evaluation_steps", [step.model_copy(update={"step": 40})])  # of a longer try
    evaluate(config, lake)
    assert lake.count("evaluations") == len(kept(lake)) == 2 * len(SEEDS)
    assert all(len(steps_of(lake, row)) == row.n_steps for row in kept(lake))
    before = lake.versions()
    evaluate(config, lake)
    assert lake.versions() == before


def test_tables_of_data_refuse_rows_of_evaluations(config: Config, lake: Lake) -> None:
    evaluate(config, lake)
    for table, kind in (("trajectories", EvaluationTrajectory), ("steps", EvaluationStep)):
        with pytest.raises(LakeError, match=f"`{table}`: row 0"):
            lake.append(table, lake.rows(kind)[:1])
    assert not lake.count("trajectories") and not lake.count("steps")


def test_no_query_but_those_that_find_and_show_reads_the_kept_trajectories() -> None:
    named = re.compile(r"\b(evaluation_(trajectories|steps|screenshots)|all_trajectories|all_steps)\b")
    assert {path.stem for path in FOLDER.rglob("*.sql") if named.search(path.read_text())} == READERS


def test_training_filter_curriculum_queue_and_corrections_find_nothing_in_evaluations(
    config: Config, lake: Lake
) -> None:
    evaluate(with_shares(config, 1.0, 1.0), lake)
    (one, *_) = kept(lake)
    assert list(stored(lake, [one.trajectory_id])) == [] == list(trajectories_of(lake, 0))
    assert decide(config, lake, 0) == ([], 0, {})
    rows = {"iteration": None, "limit": 9, "offset": 0, "task": None, "forgetting": 0.5}
    assert ask(lake, "queue", **rows).num_rows == 0
    assert ask(lake, "exchange_trajectories", first=-9, end=9, route=None).num_rows == 0
    assert ask(lake, "decisions", iteration=None).num_rows == 0
    assert ask(lake, "demonstrations", tasks=[one.task_id], seeds=[one.seed]).num_rows == 0
    assert weighed_targets(config, lake).num_rows == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda lake, name: trajectory_of(lake, name),
        lambda lake, name: submit(lake, Draft(name, 0, "Ada", "accept")),
        lambda lake, name: submit(lake, Draft(name, 0, "Ada", "correct", 0, '{"type":"wait"}')),
        lambda lake, name: lineage_of(lake, name),
    ],
    ids=["read as data", "accept", "correct", "lineage"],
)
def test_a_use_as_data_is_refused_by_name(
    config: Config, lake: Lake, use: Callable[[Lake, str], object], sentence: Sentences
) -> None:
    evaluate(config, lake)
    lake.append("evaluation_trajectories", [kept(lake)[0].model_copy(update={"trajectory_id": "kept"})])
    with sentence.raises(UsageError, "of the evaluation of explorer"):
        use(lake, "kept")
    assert not lake.count("reviews")


def test_an_export_has_none_of_them(config: Config, lake: Lake, tmp_path: Path) -> None:
    evaluate(config, lake)
    form = FORMATS.class_of("atif")(None, None)
    with pytest.raises(UsageError, match="no trajectory to export"):
        export_trajectories(config, lake, form, tmp_path / "out")


def test_they_are_found_by_the_same_conditions_and_shown(config: Config, lake: Lake) -> None:
    evaluate(config, lake)
    assert find(lake, Wanted()).total == 0
    everything = find(lake, Wanted(evaluations=True), limit=100)
    assert everything.total == len(kept(lake)) and all(one.screenshot for one in everything)
    lost = next(row for row in kept(lake) if row.task_id == "fake/two-steps" and not row.success)
    (one,) = find(lake, Wanted(task="two-steps", outcome="failure", seed=lost.seed, evaluations=True)).rows
    assert one.row == lost and one.route is None
    shown = OpenLake(lake).trajectory(one.row.trajectory_id)
    assert len(shown.film()) >= len(shown.steps) and shown.strip().width > 160


def test_a_forgotten_one_leaves_every_file_and_its_outcome_stays(config: Config, lake: Lake) -> None:
    evaluate(config, lake)
    one = next(row for row in kept(lake) if row.n_steps > 1)
    found = forget_trajectories(lake, [one.trajectory_id], "a name is on the screen")
    assert found.rows["evaluation_trajectories"] == 1 and found.rows["evaluation_steps"] == one.n_steps
    assert found.screenshots > 0 and lake.count("evaluations") == 2 * len(SEEDS)
    evaluate(config, lake)
    assert one.trajectory_id not in {row.trajectory_id for row in kept(lake)}


def test_an_older_lake_without_these_tables_is_read_and_upgraded(config: Config, lake: Lake) -> None:
    assert upgrade(config.lake, lambda _: None) == []
    assert find(lake, Wanted(evaluations=True)).total == 0
    evaluate(config, lake)
    assert upgrade(config.lake, lambda _: None) == [] and kept(lake)
    lake.maintain(0.0)
    assert kept(lake)
