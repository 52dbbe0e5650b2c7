"""A forgotten trajectory rests nowhere, does not come back, and the policies that learned from it are named."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from apps.commands.forgetting import forget_trajectories, show_forgotten
from apps.commands.lineage import lineage_of, show_lineage
from common.process import home
from schemas.failure import UsageError
from schemas.table import utc_now
from schemas.tables.forgotten import Forgotten
from storage import forgetting
from storage.lake import Lake
from tasks.running.run import open_run
from tasks.shared.lease import iteration_lock
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import Place, make_place


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    return make_place(tmp_path)


def files_that_hold(lake: Lake, text: str) -> list[str]:
    """Data files of any version of any table in which some text column holds a text."""
    found = []
    for path in sorted((Path(lake.uri) / "tables").rglob("*.parquet")):
        rows = pq.read_table(path)
        texts = [name for name in rows.column_names if str(rows.schema.field(name).type).endswith("string")]
        if any(text in (value or "") for name in texts for value in rows[name].to_pylist()):
            found.append(str(path))
    return [path for path in found if "/forgotten/" not in path]


def used_one(lake: Lake) -> str:
    return lineage_of(lake, "policy-0000").trajectories[0]


def picture_of_its_own(lake: Lake, name: str) -> str:
    """Gives a trajectory's step a picture that no other one shows."""
    png = lake.read("screenshots").to_pylist()[0]
    lake.append("screenshots", [{**png, "sha256": "e" * 64}])
    step = lake.read("steps", where={"trajectory_id": name}).to_pylist()[0]
    lake.upsert("steps", [{**step, "next_screenshot": "e" * 64}])
    return "e" * 64


def test_it_is_gone_from_every_file_of_every_version_with_the_pictures_that_only_it_showed(own: Place) -> None:
    lake = own.lake
    name, shared = used_one(lake), lake.read("screenshots", ["sha256"])["sha256"][0].as_py()
    picture = picture_of_its_own(lake, name)
    lake.compact("steps")
    assert files_that_hold(lake, name) and files_that_hold(lake, picture)
    found = forget_trajectories(lake, [name], "a card number is on the screen")
    assert files_that_hold(lake, name) == [] and files_that_hold(lake, picture) == []
    assert found.policies == {name: ["policy-0000", "policy-0001"]}
    assert found.rows == {"trajectories": 1, "steps": 1, "screenshots": 1, "verdicts": 1}
    assert lake.count("screenshots", {"sha256": shared}) == 1
    assert lake.count("trajectories") == 71


def test_what_a_cut_short_training_a_report_and_pages_of_quality_kept_of_it_goes_too(own: Place) -> None:
    lake, name = own.lake, used_one(own.lake)
    work = home() / "work" / lake.lake_id
    kept = [work / "policy-0009" / "samples.arrow", work / "data_docs" / "iteration-0000" / "steps.html"]
    other = work / "data_docs" / "iteration-0000" / "tasks.html"
    report = Path(lake.uri) / "report" / "index.html"
    for file in (*kept, other, report):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("nothing" if file == other else f"of {name}")
    lake.blobs.store.put("data_docs/iteration-0000/steps.html", name.encode())
    forget_trajectories(lake, [name], "")
    assert not any(file.exists() for file in (*kept, report)) and other.exists()
    assert not lake.blobs.store.exists("data_docs/iteration-0000/steps.html")


def recorded(lake: Lake, name: str, frames: list[str]) -> None:
    """Writes a recording without a trajectory, with a question about it."""
    png, now = lake.read("screenshots").to_pylist()[0], utc_now()
    lake.append("screenshots", [{**png, "sha256": frame} for frame in frames])
    recording = {
        "recording_id": name, "iteration": -3, "trajectory_id": name, "source": f"{name}.mp4",
        "source_sha256": "0" * 64, "license": "mit", "width": 50, "height": 40, "rate": 4.0, "seconds": 2.0,
        "frames": frames,
        "times": [float(at) for at in range(len(frames))], "step_times": [],
    }  # fmt: skip
    asked = {
        "annotation_id": f"asked-{name}", "trajectory_id": name, "step": 0, "iteration": -3, "kind": "video",
        "author": "pixels", "thought": "At 1.0 s.", "action": None, "before": None, "after": None, "created_at": now,
        "question": "When does the screen change?", "recording": name, "begin_s": 0.0, "end_s": 2.0,
    }  # fmt: skip
    lake.append("recordings", [recording])
    lake.append("annotations", [asked])


def test_a_recording_without_a_trajectory_is_forgotten_with_its_questions_and_the_frames_that_only_it_shows(
    own: Place, capsys: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    lake, lone = own.lake, "f" * 24
    recorded(lake, lone, ["a" * 64, "b" * 64])
    recorded(lake, "e" * 24, ["b" * 64, "c" * 64])
    with sentence.raises(UsageError, lake.uri):
        forget_trajectories(lake, [lone[:12]], "")
    found = forget_trajectories(lake, [lone], "a face is in it")
    assert (found.trajectories, found.recordings, found.policies) == ([lone], [lone], {lone: []})
    assert found.rows == {"recordings": 1, "annotations": 1, "screenshots": 1}
    assert files_that_hold(lake, lone) == [] and files_that_hold(lake, "a" * 64) == []
    assert lake.count("screenshots", {"sha256": ["b" * 64, "c" * 64]}) == 2
    recorded(lake, lone, ["b" * 64])
    assert not lake.count("recordings", {"trajectory_id": lone})
    show_forgotten(found)
    sentence(capsys.readouterr().out)


def test_a_policy_that_learned_from_a_recording_without_a_trajectory_is_named(own: Place) -> None:
    lake, lone = own.lake, "f" * 24
    recorded(lake, lone, ["a" * 64])
    (row,) = lake.read("policies", where={"policy_version": "policy-0001"}).to_pylist()
    pins = {**json.loads(row["data_versions"]), "annotations": lake.version("annotations")}
    settings = json.loads(row["config"])
    for share in (0.0, 0.2):
        settings = {**settings, "train": {**settings.get("train", {}), "video": share}}
        lake.upsert("policies", [{**row, "data_versions": json.dumps(pins), "config": json.dumps(settings)}])
        found = forget_trajectories(lake, [lone], "", dry_run=True)
        assert found.policies == {lone: ["policy-0001"] if share else []}
    assert lone not in lineage_of(lake, "policy-0001").trajectories


def test_a_frame_that_a_recording_shows_stays_when_a_removal_that_was_cut_short_ends(own: Place) -> None:
    lake, name = own.lake, used_one(own.lake)
    recorded(lake, "e" * 24, ["b" * 64])
    row = {"reason": "x", "policies": [], "screenshots": ["b" * 64], "done": False, "created_at": utc_now()}
    lake.append("forgotten", [{"trajectory_id": name, **row}])
    forget_trajectories(lake, [name], "")
    assert lake.count("screenshots", {"sha256": "b" * 64}) == 1


def test_pinned_versions_stay_readable_without_it(own: Place) -> None:
    lake, name = own.lake, used_one(own.lake)
    before = lineage_of(lake, "policy-0000").trajectories
    forget_trajectories(lake, [name], "")
    after = lineage_of(lake, "policy-0000").trajectories
    assert set(before) - set(after) == {name}
    assert lake.missing(json.loads(lake.read("policies", ["data_versions"])["data_versions"][0].as_py() or "{}")) == {}


def test_its_name_leaves_the_words_about_others_and_who_was_turned_away_for_it_is_named(
    own: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, name = own.lake, used_one(own.lake)
    other, third = lake.read("trajectories", ["trajectory_id"], {"success": True, "iteration": 1})[0].to_pylist()[:2]
    verdict = lake.read("verdicts", where={"trajectory_id": other, "gate": "route"}).to_pylist()[0]
    turned_away = {**verdict, "passed": False, "route": "rl", "gate_version": "2", "created_at": utc_now()}
    why = f"the same as {name}, which is accepted"
    lake.append("verdicts", [{**turned_away, "reason": f"duplicates: {why}"}])
    lake.append("verdicts", [{**turned_away, "gate": "duplicates", "reason": why}])
    lake.append("verdicts", [{**turned_away, "trajectory_id": third, "reason": f"duplicates: the same as {other}"}])
    result = lake.read("quality").to_pylist()[0]
    examples = json.dumps([{"trajectory_id": name, "step": 0}])
    lake.upsert("quality", [{**result, "examples": examples}])
    same = {key: result[key] for key in ("iteration", "table", "expectation", "unexpected")}
    taken = {**same, "broke": False, "reason": f"{name} is known", "person": "ada", "created_at": utc_now()}
    lake.append("quality_overrides", [taken])
    found = forget_trajectories(lake, [name], "")
    assert files_that_hold(lake, name) == []
    assert found.duplicates == [other]
    reasons = lake.read("verdicts", ["reason"], {"trajectory_id": other, "gate_version": "2"})["reason"].to_pylist()
    assert sorted(reasons) == [
        f"{said}the same as a forgotten trajectory, which is accepted" for said in ("duplicates: ", "")
    ]
    key = {name: result[name] for name in ("iteration", "table", "expectation")}
    (kept,) = lake.read("quality", ["examples"], key)["examples"].to_pylist()
    assert json.loads(kept) == [{"trajectory_id": "a forgotten trajectory", "step": 0}]
    assert lake.read("quality_overrides", ["reason"])["reason"].to_pylist() == ["a forgotten trajectory is known"]
    show_forgotten(found)
    assert f"(`flywheel refilter` decides again): {other}" in capsys.readouterr().out


def test_it_does_not_come_back_by_whoever_writes_it_again(own: Place) -> None:
    lake, name = own.lake, used_one(own.lake)
    rows = {table: lake.read(table, where={"trajectory_id": name}).to_pylist() for table in ("trajectories", "steps")}
    forget_trajectories(lake, [name], "")
    for store in (lake, Lake.open(own.config.lake)):
        for table, there in rows.items():
            assert there and store.append(table, there) == 0
            store.upsert(table, there)
            assert store.count(table, {"trajectory_id": name}) == 0


def test_a_kill_anywhere_is_gone_on_from_by_the_same_command(own: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, name = own.lake, used_one(own.lake)
    picture = picture_of_its_own(lake, name)
    whole = forgetting._rewrite
    for left in range(3):
        remaining = iter(range(left))

        def dying(*arguments: Any, remaining: Iterator[int] = remaining) -> None:
            if next(remaining, None) is None:
                raise KeyboardInterrupt
            whole(*arguments)

        monkeypatch.setattr(forgetting, "_rewrite", dying)
        with pytest.raises(KeyboardInterrupt):
            forget_trajectories(lake, [name], "secret")
        assert not lake.rows(Forgotten)[0].done
    monkeypatch.setattr(forgetting, "_rewrite", whole)
    found = forget_trajectories(lake, [name], "")
    assert files_that_hold(lake, name) == [] and files_that_hold(lake, picture) == []
    (row,) = lake.rows(Forgotten)
    assert (row.done, row.reason, row.policies) == (True, "secret", found.policies[name])
    assert row.policies == ["policy-0000", "policy-0001"]


def test_what_repeats_its_steps_goes_with_it(own: Place) -> None:
    lake, name = own.lake, used_one(own.lake)
    row = lake.read("trajectories", where={"trajectory_id": name}).to_pylist()[0]
    lake.append("trajectories", [{**row, "trajectory_id": "again", "continues": name, "replayed": 1}])
    lake.append("trajectories", [{**row, "trajectory_id": "once more", "continues": "again", "replayed": 1}])
    found = forget_trajectories(lake, [name], "")
    assert found.with_them == ["again", "once more"]
    assert lake.count("trajectories", {"trajectory_id": ["again", "once more", name]}) == 0


def test_a_dry_run_removes_nothing_and_says_what_would_go(
    own: Place, capsys: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    lake, name, before = own.lake, used_one(own.lake), own.lake.versions()
    found = forget_trajectories(lake, [name], "", dry_run=True)
    show_forgotten(found)
    said = capsys.readouterr().out
    assert lake.versions() == before and found.rows["steps"] == 1
    sentence(said, "policy-0000", "policy-0001")


def test_its_lineage_says_that_it_was_forgotten_and_who_learned_from_it(
    own: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    name = used_one(own.lake)
    forget_trajectories(own.lake, [name], "asked by the person in it")
    found = lineage_of(own.lake, name)
    assert (found.as_dict["kind"], found.policies, found.row.done) == (
        "forgotten",
        ["policy-0000", "policy-0001"],
        True,
    )
    show_lineage(found)
    assert "asked by the person in it" in capsys.readouterr().out


def test_an_id_that_is_none_is_refused_and_nothing_is_removed(own: Place) -> None:
    before = own.lake.versions()
    with pytest.raises(UsageError, match="no trajectory `nobody`"):
        forget_trajectories(own.lake, [used_one(own.lake), "nobody"], "")
    with pytest.raises(UsageError, match=f"use a full id: {used_one(own.lake)}"):
        forget_trajectories(own.lake, [used_one(own.lake)[:8]], "")
    assert own.lake.versions() == before


def test_a_policy_whose_data_is_not_readable_any_more_is_named_and_stops_nothing(own: Place) -> None:
    lake, name = own.lake, used_one(own.lake)
    rows = lake.read("policies", where={"policy_version": "policy-0000"}).to_pylist()
    lake.upsert("policies", [{**row, "data_versions": '{"verdicts":99,"trajectories":0}'} for row in rows])
    assert lineage_of(lake, name).unknown == ["policy-0000"]
    found = forget_trajectories(lake, [name], "")
    assert (found.policies[name], found.unknown) == (["policy-0001"], ["policy-0000"])


def child(lake: Lake, name: str, parent: str, **fields: Any) -> None:
    row = lake.read("policies", where={"policy_version": "policy-0001"}).to_pylist()[0]
    made = {"policy_version": name, "parent": parent, "data_versions": "{}", "status": "held", "created_at": utc_now()}
    lake.append("policies", [{**row, **made, **fields}])


@pytest.mark.slow
def test_policies_made_from_those_that_learned_from_it_are_named_as_such_also_merged_ones(
    own: Place, capsys: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    lake, name = own.lake, used_one(own.lake)
    late = lineage_of(lake, "policy-0001").trajectories
    new = next(one for one in late if one not in lineage_of(lake, "policy-0000").trajectories)
    child(lake, "other", "policy-initial", config="{}")
    child(lake, "merged-0000", "policy-initial", metrics=json.dumps({"merged": {"policy-0001": 0.5, "other": 0.5}}))
    child(lake, "grandchild", "merged-0000")
    found = lineage_of(lake, new)
    assert (found.policies, found.through) == (["policy-0001"], ["merged-0000", "grandchild"])
    forgotten = forget_trajectories(lake, [new], "")
    assert (forgotten.policies, forgotten.through) == ({new: ["policy-0001"]}, ["merged-0000", "grandchild"])
    child(lake, "made later", "grandchild")
    gone = lineage_of(lake, new)
    assert (gone.policies, gone.through) == (["policy-0001"], ["merged-0000", "grandchild", "made later"])
    show_forgotten(forgotten)
    show_lineage(gone)
    said = capsys.readouterr().out
    sentence.lines(said, "merged-0000")
    again = forget_trajectories(lake, [new, name], "", dry_run=True)
    assert "made later" in again.through and "other" not in again.through


def test_what_was_made_from_a_policy_whose_data_is_not_readable_is_not_known_either(own: Place) -> None:
    lake, name = own.lake, used_one(own.lake)
    rows = lake.read("policies", where={"policy_version": "policy-0000"}).to_pylist()
    lake.upsert("policies", [{**row, "data_versions": '{"verdicts":99,"trajectories":0}'} for row in rows])
    child(lake, "beside", "policy-0000")
    assert lineage_of(lake, name).unknown == ["policy-0000", "beside"]


def test_nothing_is_forgotten_while_a_flow_such_as_a_retraining_is_at_work(own: Place, sentence: Sentences) -> None:
    before, name = own.lake.versions(), used_one(own.lake)
    with (
        open_run(own.config, create=False),
        sentence.raises(UsageError, os.getpid(), own.lake.uri),
    ):
        forget_trajectories(own.lake, [name], "")
    assert own.lake.versions() == before
    assert forget_trajectories(own.lake, [name], "").trajectories == [name]


def test_no_run_begins_while_something_is_forgotten(
    own: Place, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    refused = list[UsageError]()
    whole = forgetting._rewrite

    def meanwhile(lake: Lake, *arguments: Any) -> None:
        with pytest.raises(UsageError) as error, iteration_lock(lake):
            pass
        refused.append(error.value)
        whole(lake, *arguments)

    monkeypatch.setattr(forgetting, "_rewrite", meanwhile)
    forget_trajectories(own.lake, [used_one(own.lake)], "")
    assert len({str(error) for error in refused}) == 1
    sentence(refused[0], hint="lake.uri")
    with iteration_lock(own.lake):
        pass


def test_judges_that_learned_from_their_pages_are_named(
    own: Place, capsys: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    lake, name = own.lake, used_one(own.lake)
    row = lake.read("trajectories", where={"trajectory_id": name}).to_pylist()[0]
    assert row["success"] is not None
    for judge, learned in (("mine", [f"{row['task_id']} {row['seed']}", "fake/other 1"]), ("other", ["fake/other 1"])):
        lake.blobs.store.put(f"judges/{judge}/judge.json", json.dumps({"learned": learned}).encode())
    found = forget_trajectories(lake, [name], "", dry_run=True)
    assert found.judges == ["mine"]
    show_forgotten(found)
    sentence(capsys.readouterr().out)
