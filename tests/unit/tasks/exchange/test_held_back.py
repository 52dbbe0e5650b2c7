"""What one lake held back no other one takes for a success because it was exported and imported."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from curation.converters.format import FORMATS
from curation.redaction import Redactor
from schemas.config import Config, config_of
from schemas.tables.task import GuiTask
from schemas.tables.trajectory import Trajectory
from schemas.tables.verdict import Verdict
from storage.lake import Lake
from tasks.exchange.export import export_trajectories
from tasks.exchange.importing import Request, _import_records  # pyright: ignore[reportPrivateUsage]
from tasks.filter import decide
from tasks.running.run import Run
from tasks.shared.reviews import Draft, submit
from tests.fixtures.sentences import Sentences
from tests.tiers import NIGHTLY
from tests.unit.apps.conftest import Place, make_place

ITERATION = -2
TRUSTED = {"filter": {"gates": ["environment", "verifier", "judge"]}}
"""One screen with one click on it is no trajectory that the other gates let pass."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    yield make_place(tmp_path)


def other(config: Config, folder: Path, **changes: Any) -> Run:
    """Another lake, of the same suite if no other is given."""
    lake = {"uri": str(folder / "other"), "min_free_mb": 1}
    fields = {**json.loads(config.canonical()), **TRUSTED, "lake": lake, **changes}
    away = config_of(fields)
    return Run(away, Lake.open(away.lake), "run")


def successes(lake: Lake) -> list[Trajectory]:
    """Those of the first iteration that ended well, in order."""
    rows = lake.rows(Trajectory, {"iteration": 0, "success": True})
    return sorted(rows, key=lambda one: (one.task_id, one.policy, one.seed))


def held(lake: Lake, one: Trajectory, route: str, reason: str) -> None:
    """A newer decision of the filter."""
    (verdict,) = lake.rows(Verdict, {"trajectory_id": one.trajectory_id})
    changes = {"route": route, "passed": route == "sft", "reason": reason, "gate_version": "2"}
    lake.append("verdicts", [verdict.model_copy(update={**changes, "created_at": verdict.created_at.replace(hour=23)})])


def brought(run: Run, form: str, folder: Path) -> dict[str, Verdict]:
    """By the id that it had, what the filter decides on each trajectory that is imported."""
    _import_records(run, ITERATION, Request(format=form, path=folder), f"import:{form}:0123456789abcdef")
    rows = run.lake.rows(Trajectory, {"iteration": ITERATION})
    names = {one.trajectory_id: json.loads(one.extra or "")["flywheel"]["trajectory_id"] for one in rows}
    decided, *_ = decide(run.config, run.lake, ITERATION)
    return {names[one.trajectory_id]: one for one in decided}


KEPT = sorted(FORMATS.names) if NIGHTLY else ["agentnet", "trl"]


@pytest.mark.slow
@pytest.mark.parametrize("form", KEPT)
def test_what_was_held_back_is_held_back_where_it_is_imported_with_the_reason(
    place: Place, tmp_path: Path, form: str, sentence: Sentences
) -> None:
    fine, hacked, doubtful, empty, looped, rejected = successes(place.lake)[:6]
    held(place.lake, hacked, "quarantine", "shortcut: it wrote the answer's file")
    held(place.lake, doubtful, "quarantine", "judge: on probation, 3 of 20")
    held(place.lake, empty, "none", "environment: the page never came")
    held(place.lake, looped, "ct", "loops: the same again")
    submit(place.lake, Draft(rejected.trajectory_id, 0, "ada", "reject", note="It saved nothing; ask eve@example.org."))
    kind = FORMATS.class_of(form)()
    redactor = None if kind.comes_home else Redactor()
    export_trajectories(place.config, place.lake, kind, tmp_path / "out", (0, 1), redactor=redactor)
    found = brought(other(place.config, tmp_path), form, tmp_path / "out")
    routes = {"quarantine": (hacked, doubtful), "none": (empty,), "ct": (looped, rejected), "sft": (fine,)}
    for route, those in routes.items():
        assert {found[one.trajectory_id].route for one in those} == {route}
    why = found[hacked.trajectory_id].reason
    sentence(why)
    answer = found[rejected.trajectory_id].reason
    assert "(ct): person: rejected by ada: It saved nothing" in answer
    assert ("eve@example.org" in answer) == kind.comes_home
    assert all(found[one.trajectory_id].valid_steps is None for one in (looped, rejected))
    failed = next(one for one in place.lake.rows(Trajectory, {"iteration": 0, "success": False}))
    sentence(found[failed.trajectory_id].reason)


@pytest.mark.slow
def test_what_was_accepted_since_is_imported_anew_and_accepted(place: Place, tmp_path: Path) -> None:
    one = successes(place.lake)[0]
    held(place.lake, one, "quarantine", "judge: on probation")
    run, form = other(place.config, tmp_path), FORMATS.class_of("agentnet")()
    export_trajectories(place.config, place.lake, form, tmp_path / "out", (0, 1), "quarantine")
    assert [found.route for found in brought(run, "agentnet", tmp_path / "out").values()] == ["quarantine"]
    submit(place.lake, Draft(one.trajectory_id, 0, "ada", "accept"))
    export_trajectories(place.config, place.lake, form, tmp_path / "again", (0, 1), "sft")
    brought(run, "agentnet", tmp_path / "again")
    there = {row.trajectory_id for row in run.lake.rows(Trajectory, {"task_id": one.task_id, "seed": one.seed})}
    routes = [row.route for row in run.lake.rows(Verdict, {"gate": "route"}) if row.trajectory_id in there]
    assert {"sft", "quarantine"} == set(routes)


@pytest.mark.slow
def test_a_claim_of_success_is_no_verifier_s_word_on_a_task_of_the_suite_that_only_a_judge_scores(
    place: Place, tmp_path: Path
) -> None:
    export_trajectories(place.config, place.lake, FORMATS.class_of("agentnet")(), tmp_path / "out", (0, 1), "sft")
    file, note = tmp_path / "out" / "agentnet.jsonl", "fake/note"
    file.write_text(file.read_text().replace("fake/click-target", note))
    run = other(place.config, tmp_path, suite={"tasks": ["note", "two-steps"]})
    found = brought(run, "agentnet", tmp_path / "out")
    rows = {one.trajectory_id: one.task_id for one in run.lake.rows(Trajectory)}
    assert {rows[one.trajectory_id]: one.route for one in found.values()} == {
        note: "quarantine", "fake/two-steps": "sft"
    }  # fmt: skip
    assert {"no verifier" in one.reason for one in found.values() if one.route == "quarantine"} == {True}


def test_an_import_brings_the_tasks_of_the_suite_that_it_is_of(place: Place, tmp_path: Path) -> None:
    export_trajectories(place.config, place.lake, FORMATS.class_of("agentnet")(), tmp_path / "out", (0, 1))
    run = other(place.config, tmp_path)
    brought(run, "agentnet", tmp_path / "out")
    assert {one.task_id for one in run.lake.rows(GuiTask)} == {"fake/click-target", "fake/two-steps"}
