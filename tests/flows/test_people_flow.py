"""What people decide in a desk, over HTTP, is in the next retraining without another step, and in its lineage."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.commands.lineage import lineage_of
from apps.commands.status import status_of
from apps.report.build import build_report
from flows.flywheel import flywheel
from flows.policies import retrain
from schemas.config import Config, config_of
from schemas.observation import elements_of
from storage.catalog import ask
from storage.lake import Lake
from tasks.shared.policies import policy_row

pytestmark = pytest.mark.slow


Row = dict[str, Any]


@pytest.fixture
def config(small: Config) -> Config:
    fields = small.model_dump()
    fields["suite"]["tasks"] = ("click-of-three", "two-steps")
    fields["collect"]["trajectories_per_task"] = 16
    fields["reflect"] |= {"attempts": 3, "proposers": ("explorer",)}
    return config_of(fields)


@pytest.fixture
def desk(config: Config, tmp_path: Path) -> Iterator[str]:
    """A desk in a process of its own, over a lake of one iteration."""
    flywheel(config, iterations=1)
    words = [sys.executable, "-m", "apps.cli", "desk", "--port", "0"]
    words += ["--config", str(toml(config, tmp_path))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1].rstrip("/")
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 143


def toml(config: Config, folder: Path) -> Path:
    file = folder / "config.toml"
    file.write_text(
        f'name = "small"\n[lake]\nuri = "{config.lake.uri}"\nmin_free_mb = 10\n[environments.fake]\nsandboxes = 4\n'
        f"[suite]\ntasks = {json.dumps(list(config.suite.tasks))}\nheld_out = []\n[policy]\nmax_new_tokens = 8\n"
    )
    return file


def send(desk: str, path: str, body: Row | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(desk + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.loads(answer.read())


def decide(desk: str, trajectory: str, decision: str, **more: Any) -> str:
    fields = {"trajectory_id": trajectory, "revision": 0, "person": "ada", "decision": decision}
    return send(desk, "/api/reviews", fields | more)["review_id"]


def failed_first(lake: Lake, task: str) -> list[Row]:
    """Failures of a task whose first action ended or wasted it, with that step."""
    where = {"success": False, "task_id": f"fake/{task}", "n_steps": 1}
    rows = sorted(lake.read("trajectories", where=where).to_pylist(), key=lambda one: one["trajectory_id"])
    steps = {one["trajectory_id"]: one for one in lake.read("steps", where={"step": 0}).to_pylist()}
    return [{**row, "shown": steps[row["trajectory_id"]]} for row in rows]


def click(row: Row, right: bool, place: int = 0) -> Row:
    """A click on the button that the instruction names at a place, or on another one."""
    elements = elements_of(row["shown"]["elements"])
    name = row["instruction"].split('"')[1 + 2 * place]
    box = next(one.box for one in elements if (one.name == name) == right)
    return {"type": "click", "x": (box[0] + box[2]) / 2, "y": (box[1] + box[3]) / 2}


def test_every_kind_of_decision_reaches_the_next_retraining_and_its_lineage(config: Config, desk: str) -> None:
    lake = Lake.open(config.lake)
    one, other, *rest = failed_first(lake, "click-of-three")
    first, marked = failed_first(lake, "two-steps")[:2]
    verified = decide(desk, one["trajectory_id"], "correct", step=0, action=click(one, True), thought="That one.")
    refuted = decide(desk, other["trajectory_id"], "correct", step=0, action=click(other, False))
    going_on = decide(desk, first["trajectory_id"], "correct", step=0, action=click(first, True))
    accepted = decide(desk, rest[0]["trajectory_id"], "accept")
    error = decide(desk, marked["trajectory_id"], "error_step", step=0)
    won = lake.read("trajectories", ["trajectory_id"], {"success": True})["trajectory_id"].to_pylist()
    rejected = decide(desk, min(won), "reject")
    thought = decide(
        desk, max(won), "correct", step=0, thought="Because it says so.", action=recorded(lake, max(won))["action"]
    )
    at_once = {"success": True, "task_id": "fake/click-of-three", "n_steps": 1}
    short = lake.read("trajectories", ["trajectory_id"], at_once)["trajectory_id"].to_pylist()
    stands = next(name for name in sorted(short) if name not in (min(won), max(won)))
    nowhere = decide(desk, stands, "correct", step=0, action={"type": "click", "x": 0.01, "y": 0.01})

    live = overridden(desk, first)

    version = retrain(config)

    learned = lineage_of(lake, version)
    override, then = lake.read("reviews", ["review_id"], {"trajectory_id": live})["review_id"].to_pylist()
    assert set(learned.reviews) == {verified, going_on, accepted, error, rejected, thought, override, then}
    assert refuted not in learned.reviews and nowhere not in learned.reviews
    states = {row["review_id"]: row for row in ask(lake, "people_corrections").to_pylist()}
    assert (states[verified]["state"], states[refuted]["state"]) == ("verified", "refuted")
    assert states[thought]["state"] == "verified" and states[thought]["tries"] == 0
    assert states[nowhere]["state"] == "unverified" and states[nowhere]["tries"] == 3
    shown = lake.read("trajectories", where={"trajectory_id": states[verified]["shown_by"]}).to_pylist()[0]
    assert shown["success"] and (shown["continues"], shown["replayed"]) == (one["trajectory_id"], 0)
    assert shown["trajectory_id"] in learned.trajectories
    weights = weighed(config, lake, policy_row(lake, version).pins)
    assert weights[shown["trajectory_id"], 0] and not weights.get((other["trajectory_id"], 0))
    assert weights[live, 0] and live in learned.trajectories
    assert weights[rest[0]["trajectory_id"], 0] and not any(name == min(won) for name, _ in weights)
    pairs = {row["pair_id"]: row for row in lake.read("pairs").to_pylist()}
    assert pairs[verified]["verified"] and pairs[verified]["trajectory_id"] == shown["trajectory_id"]
    listed = ask(lake, "training_pairs", corrections="all")["pair_id"].to_pylist()
    assert {verified, override} <= set(listed) and not {refuted, nowhere} & set(listed)

    (row,) = status_of(lake)["people"]
    assert (row.policy, row.decisions, row.new, row.parent) == (version, 8, 8, policy_row(lake, version).parent)
    assert row.tasks == ["fake/click-of-three", "fake/two-steps"] and row.n == 6
    assert row.difference == pytest.approx(row.after - row.before)
    page = build_report(config).read_text()
    assert "decisions and their effect" in page and 'id="people"' in page

    send(desk, "/api/reviews", undo(one["trajectory_id"], verified))
    assert verified not in {row["review_id"] for row in ask(lake, "people_decisions").to_pylist()}
    assert (shown["trajectory_id"], 0) not in weighed(config, lake, lake.versions())


def overridden(desk: str, known: Row) -> str:
    """A live session in the task and seed of a known trajectory: a person overrides what is proposed, and succeeds."""
    sent = {"person": "ada", "task_id": known["task_id"], "seed": known["seed"], "policy": "explorer"}
    begun = send(desk, "/api/live", sent)
    shown: Row = {"number": -1, "state": "starting"}
    while shown["state"] != "ended":
        shown = send(desk, f"/api/live/{begun['session']}?seen={shown['number']}")
        if shown["state"] == "asking":
            action = click(known, True, len(shown["done"]))
            answer = {"person": "ada", "number": shown["number"], "decision": "override", "thought": "That one."}
            send(desk, f"/api/live/{begun['session']}", {**answer, "action": action})
    return begun["trajectory_id"]


def recorded(lake: Lake, name: str) -> Row:
    (step,) = lake.read("steps", where={"trajectory_id": name, "step": 0}).to_pylist()
    return {"action": json.loads(step["actions"][0])}


def undo(name: str, review: str) -> Row:
    return {"trajectory_id": name, "revision": 1, "person": "ada", "decision": "undo", "undoes": review}


def weighed(config: Config, lake: Lake, pins: dict[str, int]) -> dict[tuple[str, int], float | None]:
    asked = {
        "balance": 1.0, "floor": 0.15, "grounding_share": 0.15, "practice_share": 0.1, "measured": "p", "practice": [],
        "prefixes": "people", "corrections": config.filter.corrections, "history_images": config.policy.history_images,
    }  # fmt: skip
    rows = ask(lake, "training_weights", pins, **asked).to_pylist()
    return {(row["trajectory_id"], row["step"]): row["weight"] for row in rows if not row["grounding"]}
