"""The Python API as a notebook uses it."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from PIL import Image
from polars.testing import assert_frame_equal

import flywheel
from flywheel.comparison import HistoryComparison
from flywheel.difference import VersionComparison
from schemas.action import Click, Hotkey
from schemas.config.profiles import config_file
from schemas.config.sections import LakeConfig
from schemas.failure import LakeError, UsageError
from schemas.tables import TABLES
from schemas.tables.policy import MEASURES
from storage.lake import Lake as StoredLake
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import make_place
from tests.unit.storage.conftest import DEFAULTS, NOON

Rows = Callable[..., dict[str, Any]]


def row(table: str, **changes: Any) -> dict[str, Any]:
    return {**DEFAULTS[table], **changes}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A lake of one trajectory of two steps, one failed trajectory, one policy and its evaluations."""
    stored = StoredLake.open(LakeConfig(uri=str(tmp_path / "lake")))
    picture = io.BytesIO()
    Image.new("RGB", (4, 3), "red").save(picture, "PNG")
    stored.append("screenshots", [row("screenshots", png=picture.getvalue())])
    stored.append(
        "trajectories", [row("trajectories", n_steps=2), row("trajectories", trajectory_id="t1", success=False)]
    )
    click = '{"type":"click","x":0.25,"y":0.75}'
    stored.append("steps", [row("steps", step=1), row("steps", step=0, actions=[click], action_type="click")])
    stored.append("verdicts", [row("verdicts")])
    stored.append("policies", [row("policies")])
    stored.append("evaluations", [row("evaluations", seed=2_000_000 + n, success=n > 0) for n in range(4)])
    stored.append("stages", [row("stages")])
    return tmp_path / "lake"


def test_every_table_is_a_frame_with_the_columns_of_its_contract(place: Path):
    lake = flywheel.open(str(place))
    for name, contract in TABLES.items():
        frame = lake.table(name)
        assert frame.collect_schema().names() == contract.schema.names, name
        assert frame.collect().schema == frame.collect_schema(), name


def test_a_query_filters_selects_and_limits_as_over_the_whole_frame(place: Path):
    lake = flywheel.open(str(place))
    whole = lake.trajectories().collect()
    asked = lake.trajectories().filter(pl.col("success").not_()).select("trajectory_id", steps=pl.col("n_steps") * 2)
    assert_frame_equal(
        asked.collect(), whole.filter(~pl.col("success")).select("trajectory_id", steps=pl.col("n_steps") * 2)
    )
    assert lake.trajectories().head(1).collect().height == 1
    assert lake.trajectories().select(pl.len()).collect().item() == 2
    joined = lake.steps().join(lake.trajectories(), on="trajectory_id").group_by("task_id").len().collect()
    assert joined.rows() == [("miniwob/a", 2)]


def test_a_frame_is_read_anew_at_each_collection_and_a_pinned_version_is_not(place: Path):
    lake = flywheel.open(str(place))
    frame, pinned = lake.trajectories(), lake.table("trajectories", version=lake.tables["trajectories"])
    StoredLake.open(LakeConfig(uri=str(place))).append("trajectories", [row("trajectories", trajectory_id="t2")])
    assert frame.collect().height == 3 and pinned.collect().height == 2


def test_a_trajectory_has_its_steps_in_order_their_actions_and_pictures(place: Path):
    found = flywheel.open(place).trajectory("t0")
    assert [step.step for step in found.steps] == [0, 1] and found.row["task_id"] == "miniwob/a"
    assert found.actions(0) == [Click(x=0.25, y=0.75)] and found.actions(1) == []
    assert found.image(0).size == (4, 3) and found.image(0).getpixel((0, 0)) == (255, 0, 0)


def test_the_curve_and_the_funnel_are_frames(place: Path):
    lake = flywheel.open(str(place))
    curve = lake.curve().row(0, named=True)
    assert curve["success"] == 0.75 and curve["low"] < 0.75 < curve["high"] and curve["n"] == 4
    assert lake.funnel().to_dicts() == [
        {"iteration": 1, "collected": 2, "valid": 2, "judged": 1, "reviewed": 0, "selected": 1}
    ]


def test_summaries_are_frames_with_the_columns_that_they_promise(place: Path):
    stored = StoredLake.open(LakeConfig(uri=str(place)))
    measures = dict.fromkeys(MEASURES) | {"policy_version": "p1", "iteration": 1, "other": "{}", "written_at": NOON}
    stored.append("training_steps", [{**measures, "step": step, "loss": 1 / step} for step in range(1, 6)])
    explored = {"policy_version": "explorer-1", "success": False}
    stored.append("evaluations", [row("evaluations", seed=n, **explored) for n in range(4)])
    lake = flywheel.open(str(place))
    own, explored = lake.by_task().sort("iteration", nulls_last=True).to_dicts()
    assert (own["task_id"], own["success"], own["n"]) == ("miniwob/a", 0.75, 4)
    assert (explored["iteration"], explored["success"], explored["n"]) == (None, 0.0, 4)
    assert lake.collected().columns == ["iteration", "kind", "n", "success", "low", "high"]
    losses = lake.training().filter(pl.col("measure") == "loss")
    assert losses["policy"].unique().to_list() == ["p1"]
    assert losses["step"].to_list() == [1, 2, 3, 4, 5]
    assert lake.training(points=3).filter(pl.col("measure") == "loss")["step"].to_list() == [1, 3, 5]
    assert lake.training(["none"]).is_empty()
    assert lake.query("status").height == len(lake.iterations()) == 1
    success = lake.success(lake.champion())
    assert lake.champion() == "p1" and success and (success.success, success.n) == (0.75, 4)


def test_sql_takes_tables_views_and_parameters(place: Path):
    lake = flywheel.open(str(place))
    assert lake.sql("SELECT count(*) AS n FROM steps WHERE step >= $first", first=1).rows() == [(1,)]
    assert lake.sql("SELECT route FROM decisions").rows() == [("sft",)]


def test_an_empty_lake_gives_empty_frames(tmp_path: Path):
    StoredLake.open(LakeConfig(uri=str(tmp_path / "lake")))
    lake = flywheel.open(str(tmp_path / "lake"))
    assert lake.curve().is_empty() and lake.funnel().is_empty() and lake.steps().collect().is_empty()


def test_what_is_not_there_is_refused_by_name(place: Path, tmp_path: Path):
    lake = flywheel.open(str(place))
    with pytest.raises(LakeError, match="t9"):
        lake.trajectory("t9")
    with pytest.raises(LakeError, match="rollouts"):
        lake.table("rollouts")
    with pytest.raises(LakeError, match="no lake"):
        flywheel.open(tmp_path / "none")
    with pytest.raises(UsageError, match="endpiont"):
        flywheel.open(str(place), endpiont="http://127.0.0.1:1")


def test_a_config_file_names_the_lake(place: Path, tmp_path: Path):
    config = tmp_path / "own.toml"
    config.write_text(config_file("miniwob").read_text().replace('uri = "lake"', f"uri = {json.dumps(str(place))}"))
    assert flywheel.open(config=str(config)).uri == flywheel.open(str(place)).uri


def loaded(statement: str, *modules: str) -> list[str]:
    """Those of the modules that a statement loads in a new process."""
    code = f"import json, sys\n{statement}\nprint(json.dumps([name for name in {modules} if name in sys.modules]))"
    return json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def test_importing_the_package_loads_nothing_heavy():
    heavy = ("torch", "prefect", "polars", "pyarrow", "deltalake", "duckdb", "transformers", "pydantic")
    assert loaded("import flywheel", *heavy) == []


def test_reading_a_lake_loads_neither_torch_nor_prefect(place: Path):
    assert loaded(f"import flywheel; flywheel.open({str(place)!r}).curve()", "torch", "prefect", "transformers") == []


def test_status_loads_neither_frames_nor_the_clients_of_object_stores(place: Path):
    status = f"from apps.commands.status import status_of; status_of(flywheel.open({str(place)!r}).stored)"
    heavy = ("pandas", "polars", "fsspec", "altair", "torch", "prefect")
    assert loaded(f"import flywheel; {status}", *heavy) == []


def test_the_guide_runs_on_a_lake(place: Path, monkeypatch: pytest.MonkeyPatch):
    page = (Path(__file__).parents[3] / "docs" / "inspect.md").read_text()
    code, _ = re.findall(r"^```python\n(import flywheel\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(place.parent)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["first"] == "t0" and names["trajectory"].image(0).size == (4, 3)


def test_the_guide_on_comparisons_runs_on_two_lakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "evaluations.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    make_place(tmp_path)
    (tmp_path / "other").mkdir()
    make_place(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["won"] == [1_000_004, 1_000_005] and names["pair"].a.outcome == "failure"


def test_a_reviewer_accepts_corrects_and_takes_back_and_a_second_reading_knows(place: Path):
    lake = flywheel.open(str(place))
    accepted = lake.annotate("t0", "accept", person="Ada")
    corrected = lake.annotate("t0", "correct", person="Ada", step=1, action=Click(x=0.5, y=0.25), thought="Here.")
    reviews = lake.table("reviews").sort("revision").collect()
    assert reviews["decision"].to_list() == ["accept", "correct"] and reviews["person"].to_list() == ["Ada", "Ada"]
    assert (accepted.revision, corrected.revision) == (0, 1)
    (correction,) = lake.annotations().filter(pl.col("kind") == "correction").collect().to_dicts()
    assert json.loads(correction["action"]) == {"type": "click", "x": 0.5, "y": 0.25} and correction["step"] == 1
    lake.annotate("t0", "undo", person="Ada", undoes=corrected.review_id)
    assert lake.annotations().filter(pl.col("kind") == "correction").collect().is_empty()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"decision": "accept", "person": ""}, "person"),
        ({"decision": "correct", "person": "Ada"}, "action"),
        ({"decision": "correct", "person": "Ada", "action": Click(x=0.5, y=0.5), "step": 7}, "step"),
        ({"decision": "accept", "person": "Ada", "step": 0}, "step"),
        ({"decision": "acept", "person": "Ada"}, "`decision`: there is no 'acept'"),
        ({"decision": "accept", "person": None}, "`person`"),
        ({"decision": "note", "person": "Ada", "note": None}, "`note`"),
        ({"decision": "note", "person": "Ada", "note": "So.", "thought": 5}, "`thought`"),
        ({"decision": "error_step", "person": "Ada", "step": "0"}, "`step`"),
        ({"decision": "override", "person": "Ada", "step": 0, "action": {"type": "wait"}}, "`decision`: override"),
    ],
)
def test_a_decision_that_makes_no_sense_writes_nothing(place: Path, given: dict[str, Any], named: str):
    lake = flywheel.open(str(place))
    with pytest.raises(UsageError, match=named):
        lake.annotate("t0", **given)
    assert lake.table("reviews").collect().is_empty()


@pytest.mark.parametrize(
    "action",
    [
        "hotkey",
        '{"type":"click","x":0.5,"y":0.5}',
        7,
        [],
        {},
        {"type": "clik"},
        {"type": "click", "x": 0.5},
        {"type": "click", "x": 0.5, "y": 5},
        {"type": "hotkey", "key": ""},
        {"type": "press", "key": "ctrl c"},
        {"type": "press", "key": 7},
        {7: "click"},
    ],
)
def test_what_is_no_action_is_refused_with_its_field_and_an_example(
    place: Path, action: Any, sentence: Sentences
) -> None:
    lake = flywheel.open(str(place))
    with sentence.raises(UsageError, "`action"):
        lake.annotate("t0", "correct", person="Ada", step=0, action=action)
    assert lake.table("reviews").collect().is_empty()


@pytest.mark.parametrize(
    ("action", "stored"),
    [
        ({"type": "click", "x": 0.5, "y": 0.25}, {"type": "click", "x": 0.5, "y": 0.25}),
        ({"type": "hotkey", "key": "ctrl+c"}, {"type": "hotkey", "key": "ctrl c"}),
        (Hotkey(key="Ctrl + Shift + T"), {"type": "hotkey", "key": "ctrl shift t"}),
        ({"type": "press", "key": "Shift"}, {"type": "press", "key": "shift"}),
    ],
)
def test_an_action_is_given_as_its_fields_or_as_itself_and_stored_as_readers_write_it(
    place: Path, action: Any, stored: dict[str, Any]
) -> None:
    review = flywheel.open(str(place)).annotate("t0", "correct", person="Ada", step=0, action=action)
    assert json.loads(review.action or "") == stored


def test_policies_runs_and_lakes_are_compared_as_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    lake, other = (flywheel.open(make_place(tmp_path / name).lake.uri) for name in "ab")
    rows = lake.stored.read("stages").to_pylist()
    lake.stored.upsert("stages", [row | {"run_id": "the-second"} for row in rows if row["iteration"] > 0])
    assert [(run.run_id, run.iterations) for run in lake.runs()] == [("run", [-1, 0]), ("the-second", [1, 2])]
    runs = lake.diff("run", "the-second")
    assert isinstance(runs, HistoryComparison) and runs.success.mean == pytest.approx(0.25)
    policies = lake.diff("policy-0000", "champion")
    assert isinstance(policies, VersionComparison) and policies.policies is not None
    assert lake.diff_lake(other).success.mean == 0.0
    won = [one.seed for one in lake.seed_pairs("policy-0000", "champion", "two-steps") if one.won == "b"]
    assert won == [1_000_004, 1_000_005]
    pair = lake.side_by_side("policy-0000", "champion", "two-steps", 1_000_005)
    assert (pair.a.outcome, pair.b.outcome, pair.differs_at) == ("failure", "success", None)
