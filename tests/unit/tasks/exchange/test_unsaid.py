"""What an import does not say, how its trajectories ended, judges and people say."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from apps.desk.pages import funnel_of
from apps.desk.queue import Queue, QueueEntry
from schemas.config import Config, config_of
from schemas.tables.verdict import Verdict
from storage.catalog import ask
from storage.lake import Lake
from tasks.exchange.importing import Request, _import_records  # pyright: ignore[reportPrivateUsage]
from tasks.filter import decide
from tasks.judge import judge_again
from tasks.running.run import Run


def config(folder: Path, **judge: Any) -> Config:
    return config_of(
        {
            "lake": {"uri": str(folder / "lake"), "min_free_mb": 1},
            "environments": {"fake": {}},
            "suite": {"tasks": ["click-target"]},
            "filter": {"gates": ["environment", "duplicates", "verifier", "judge"]},
            "judge": {"evidence_min": 0, **judge},
        }
    )


def record(name: str, typed: str, completed: bool | None = None) -> dict[str, Any]:
    """One step in AgentNet's columns, which the fake judge accepts where `ada` is typed."""
    value = {"code": f"pyautogui.write(message={typed!r})", "thought": ""}
    done = {} if completed is None else {"task_completed": completed}
    traj = [{"index": 0, "image": f"{name}.png", "value": value}]
    return {"task_id": name, "instruction": f'Write "ada" ({name[0]}).', "traj": traj, **done}


def brought(run: Run, folder: Path, records: Sequence[dict[str, Any]], iteration: int = -2) -> dict[str, str]:
    """Imports them; their ids here, by name."""
    folder.mkdir()
    for number, one in enumerate(records):
        buffer = io.BytesIO()
        Image.new("RGB", (64, 48), (number, 90, 200)).save(buffer, "PNG")
        (folder / one["traj"][0]["image"]).write_bytes(buffer.getvalue())
    (folder / "theirs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    _import_records(run, iteration, Request(format="agentnet", path=folder), f"import:agentnet:{-iteration:016d}")
    rows = run.lake.read("trajectories", ["trajectory_id", "extra"], {"iteration": iteration}).to_pylist()
    return {json.loads(row["extra"])["name"]: row["trajectory_id"] for row in rows}


def queued(lake: Lake) -> dict[str, QueueEntry]:
    return {one.trajectory_id: one for one in Queue(lake, 0.5).places(100)}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    chosen = config(tmp_path, kind="fake")
    return Run(chosen, Lake.open(chosen.lake), "run")


def test_the_configured_judge_says_how_imports_ended_that_do_not_say_it(run: Run, tmp_path: Path) -> None:
    records = [record("good", "ada"), record("bad", "eve"), record("told", "eve", True)]
    names = brought(run, tmp_path / "in", records)
    decided = {one.trajectory_id: one for one in decide(run.config, run.lake, -2)[0]}
    routes = {name: decided[names[name]].route for name in names}
    assert routes == {"good": "sft", "bad": "ct", "told": "sft"}
    assert decided[names["good"]].reason.startswith("judge: fake-judge-1 gives 1.00")
    judged = {one.trajectory_id for one in run.lake.rows(Verdict, {"gate": "judge"})}
    assert judged == {names["good"], names["bad"]}  # what its record says is left to it
    assert queued(run.lake)[names["bad"]].why[:1] != ["no verifier, judge or record states the outcome"]


def test_what_a_judge_accepts_of_two_imports_alike_is_imitated_once(run: Run, tmp_path: Path) -> None:
    brought(run, tmp_path / "one", [record("good", "ada")])
    decide(run.config, run.lake, -2)
    again = brought(run, tmp_path / "two", [record("grand", "ada")], -3)
    (found,) = decide(run.config, run.lake, -3)[0]
    assert found.trajectory_id == again["grand"] and found.route == "rl"


def test_a_judge_can_be_asked_later_about_imports_that_do_not_say_how_they_ended(run: Run, tmp_path: Path) -> None:
    brought(run, tmp_path / "in", [record("good", "ada"), record("bad", "eve")])
    decided, *_ = decide(config(tmp_path), run.lake, -2)
    assert {one.route for one in decided} == {"ct"}
    found = judge_again(run.config, run.lake, None)
    assert (found.judged, found.skipped) == (2, 0)
    assert sorted(one.route for one in decide(run.config, run.lake, -2)[0]) == ["ct", "sft"]


def test_imports_stand_in_the_queue_with_the_reason_and_the_newest_is_worth_most(run: Run, tmp_path: Path) -> None:
    alone = config(tmp_path)
    old = brought(run, tmp_path / "one", [record("a", "ada"), record("b", "ada", True)])
    new = brought(run, tmp_path / "two", [record("c", "ada"), record("d", "eve", False)], -3)
    for iteration in (-2, -3):
        decide(alone, run.lake, iteration)
    row = run.lake.read("trajectories", where={"trajectory_id": old["a"]}).to_pylist()[0]
    own = {"trajectory_id": "own", "iteration": 5, "policy": "policy", "success": False}
    run.lake.append("trajectories", [{**row, **own}])
    place = queued(run.lake)
    assert {name: place[one].why for name, one in {**old, **new}.items()} == {
        "a": ["no verifier, judge or record states the outcome"],
        "b": ["only its own record states that it succeeded"],
        "c": ["no verifier, judge or record states the outcome"],
        "d": ["only its own record states that it failed"],
    }
    worth = {name: place[one].worth for name, one in {**old, **new, "own": "own"}.items()}
    assert worth == {"a": 0.375, "b": 0.125, "c": 0.75, "d": 0.25, "own": 0.25}
    assert next(iter(place)) == new["c"] and place[new["c"]].success is None


def test_the_funnel_takes_no_import_for_an_environment_failure_that_does_not_say_how_it_ended(
    run: Run, tmp_path: Path
) -> None:
    brought(run, tmp_path / "in", [record("good", "ada")])
    decide(config(tmp_path), run.lake, -2)
    (funnel,) = funnel_of(run.lake)
    assert (funnel.counts["valid"], funnel.counts["judged"]) == (1, 1)
    assert [(one.stage, one.gate) for one in funnel.drops] == [("selected", "verifier")]
    assert ask(run.lake, "funnel").to_pylist()[0]["valid"] == 1


def test_an_import_counts_the_steps_whose_action_it_could_not_read(run: Run, tmp_path: Path) -> None:
    call = record("b", "ada")
    call["traj"][0]["value"]["code"] = "pyautogui.click(x=0.1, y=0.2, clicks=4)"
    brought(run, tmp_path / "in", [record("a", "ada"), call])
    done = _import_records(run, -2, Request(format="agentnet", path=tmp_path / "in"), f"import:agentnet:{2:016d}")
    assert done.unreadable == 1
    assert str(done).endswith("; 1 step without an action that could be read (kept as text, with the reason)")
