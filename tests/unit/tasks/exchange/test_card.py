"""The card of an export has what a reader asks before using it: counts, licences, gates, redaction and lineage."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from apps.commands.data import export
from curation.converters.format import FORMATS
from curation.thoughts import thought_annotation
from environments.registry import ENVIRONMENTS
from models.thinkers.thinker import ThinkerThought
from schemas.failure import UsageError
from schemas.tables.step import Step
from schemas.tables.task import GuiTask
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import Place, make_place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    return make_place(tmp_path)


def card(folder: Path) -> tuple[dict[str, Any], str]:
    _, matter, body = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(matter), body


def test_a_card_has_the_counts_the_gates_the_policies_and_the_versions(place: Place, tmp_path: Path) -> None:
    lake = place.lake
    task = {"environment": "fake", "template": "t", "instruction": "Click.", "tags": [], "split": "train"}
    rest = {"max_steps": 3, "verifier": "fake", "lineage": "flywheel | 1"}
    lake.append("tasks", [GuiTask(task_id="fake/click-target", **task, **rest)])
    rows = lake.read("trajectories", where={"iteration": 0}).to_pylist()
    (verdict, *_) = lake.read("verdicts").to_pylist()
    named = [row["trajectory_id"] for row in rows][:4]
    for number, name in enumerate(named):
        gate = {"gate": "length", "gate_version": "2", "passed": number > 0}
        lake.append("verdicts", [{**verdict, "trajectory_id": name, **gate}])
    lake.upsert("trajectories", [{**row, "policy_version": "policy-0000"} for row in rows])
    export("hf", tmp_path / "out", config=place.file, iterations="0:1", license_name="cc-by-4.0")
    front, body = card(tmp_path / "out")
    assert front["license"] == "cc-by-4.0" and front["size_categories"] == ["n<1K"] and "gui-agent" in front["tags"]
    assert [one["config_name"] for one in front["configs"]] == ["steps", "trajectories"]
    assert (
        f"{len(rows)} trajectories of 2 tasks" in body
        and f"| success | {sum(bool(r['success']) for r in rows)} |" in body
    )
    assert "| fake | flywheel \\| 1 | unknown: see the source |" in body
    assert "| length | 2 | 4 | 3 | 75.0% |" in body
    assert "| policy-initial | random | none | before the first iteration |" in body
    assert "| policy-0000 | sft | policy-initial | iteration 0 |" in body
    assert lake.lake_id in body and f"trajectories {lake.version('trajectories')}" in body
    assert "Secrets and personal data with a known form were removed." in body


@pytest.mark.parametrize("name", ["lerobot", "trl", "agentnet"])
def test_every_export_has_a_card_and_says_that_it_is_not_redacted(place: Place, tmp_path: Path, name: str) -> None:
    export(name, tmp_path / "out", config=place.file, redact=False)
    front, body = card(tmp_path / "out")
    assert front["license"] == "unknown" and "No licence was given" in body
    assert "None: texts and images are as they were recorded" in body
    assert set(FORMATS.class_of(name).tags) <= set(front["tags"])
    for one in front.get("configs", []):
        assert sorted((tmp_path / "out").glob(one["data_files"]))


def test_a_card_has_the_licence_of_an_imported_recording_and_the_images_that_are_left_out(
    place: Place, tmp_path: Path
) -> None:
    lake = place.lake
    (row, *_) = lake.read("trajectories", where={"iteration": 0}).to_pylist()
    steps = lake.read("steps", where={"trajectory_id": row["trajectory_id"]}).to_pylist()
    imported = {"policy": "import", "task_id": "import/recording-1", "iteration": -2}
    task = {"environment": "import", "template": "r", "instruction": "{}", "tags": [], "split": "train"}
    rest = {"max_steps": 3, "verifier": "judge", "lineage": "import:recording:1"}
    lake.append("tasks", [GuiTask(task_id="import/recording-1", **task, **rest)])
    for name, license_name in (("a" * 24, "mit"), ("b" * 24, "")):
        ids = {"trajectory_id": name, "iteration": -2}
        lake.append("trajectories", [{**row, **imported, **ids}])
        lake.append("steps", [{**one, **ids, "next_screenshot": steps[0]["screenshot"]} for one in steps])
        film = {"source": "a.mp4", "source_sha256": "0" * 64, "width": 160, "height": 210, "rate": 4.0, "seconds": 1.0}
        shown = {"frames": [steps[0]["screenshot"]], "times": [0.0], "step_times": [0.5], "license": license_name}
        lake.append("recordings", [{"recording_id": name, **ids, **film, **shown}])
    export("hf", tmp_path / "out", config=place.file)
    _, body = card(tmp_path / "out")
    assert "| import | import:recording:1 | mit | 1 |" in body
    assert "| import | import:recording:1 | that of the imported data | 1 |" in body
    assert "Not checked: 1 image of steps, whose texts are unknown" in body
    assert "Left out: 2 images after a last step or between actions" in body


def test_a_card_counts_thoughts_by_author_and_rows_name_an_author_that_is_not_the_actor(
    place: Place, tmp_path: Path
) -> None:
    rows = sorted(place.lake.read("steps", where={"iteration": 0}).to_pylist(), key=lambda row: row["trajectory_id"])
    steps = [Step.model_validate({**row, "thought": "My own." if not n else ""}) for n, row in enumerate(rows[:4])]
    place.lake.upsert("steps", steps)
    given, now = ThinkerThought(text="Click the target."), datetime(2026, 1, 1, tzinfo=UTC)
    authors = [("template", None), ("template", None), ("bootstrap", None), ("actre", "big-model")]
    made = [thought_annotation(one, given, *by, now) for one, by in zip(steps, authors, strict=True)]
    place.lake.append("annotations", made)
    (tmp_path / "ids").write_text("".join(f"{one.trajectory_id}\n" for one in steps))
    export("hf", tmp_path / "out", config=place.file, ids=tmp_path / "ids")
    _, body = card(tmp_path / "out")
    for author in ("actor", "template", "bootstrap", "actre:big-model"):
        assert f"| {author} | 1 |" in body
    assert "They are not evidence of the actor's reasoning." in body
    (file,) = (tmp_path / "out/steps").glob("*.parquet")
    found = {
        row["trajectory_id"]: (row["thought"], json.loads(row["flywheel"])["steps"][0].get("thought_by", ""))
        for row in pq.read_table(file).to_pylist()
    }
    expected = [("My own.", ""), *(("Click the target.", by) for by in ("template", "bootstrap", "actre:big-model"))]
    assert [found[one.trajectory_id] for one in steps] == expected


def test_a_licence_in_another_form_is_refused_before_anything_is_written(
    place: Place, tmp_path: Path, sentence: Sentences
) -> None:
    with sentence.raises(UsageError):
        export("hf", tmp_path / "out", config=place.file, license_name="MIT License")
    assert not (tmp_path / "out").exists()


def test_miniwobs_licence_is_known() -> None:
    assert ENVIRONMENTS.class_of("miniwob-all").license == "MIT (Farama Foundation)"
