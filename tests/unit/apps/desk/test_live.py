"""Live sessions: what ends them, what is kept of them, and that of two pages one decides."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from apps.desk.app import make_app
from apps.desk.live import LiveSession
from environments.catalog import tasks_named
from rollout.trajectory import PlannedTrajectory
from schemas.config import config_of
from tests.unit.apps.conftest import Place

BEGIN = {"person": "ada", "task_id": "fake/two-steps", "seed": 3, "policy": "explorer"}
MISS = {"type": "click", "x": 0.99, "y": 0.99}


@pytest.fixture
def client(fresh: Place) -> Iterator[TestClient]:
    """A desk with one sandbox, whose sessions wait half a second for a decision."""
    fields = fresh.config.model_dump() | {"environments": {"fake": {"sandboxes": 1}}, "desk": {"idle_s": 0.5}}
    with TestClient(make_app(config_of(fields), fresh.lake), "http://127.0.0.1:8750") as client:
        yield client


def state(client: TestClient, name: str, *wanted: str) -> dict[str, Any]:
    """The session once it is in a state."""
    now: dict[str, Any] = {"number": -1, "state": ""}
    while now["state"] not in wanted:
        now = client.get(f"/api/live/{name}", params={"seen": now["number"]}).json()
    return now


def begin(client: TestClient) -> str:
    return client.post("/api/live", json=BEGIN).json()["session"]


def test_a_session_that_nobody_decides_in_ends_is_stored_and_gives_its_sandbox_back(
    client: TestClient, fresh: Place
) -> None:
    first = state(client, begin(client), "ended")
    assert first["result"]["failure_reason"] == "no decision within 0.5 s"
    again = state(client, begin(client), "asking")
    assert again["screen"]["width"] == 160 and again["proposal"]["actions"]
    row = fresh.lake.read("trajectories", where={"trajectory_id": first["trajectory"]}).to_pylist()[0]
    assert (row["success"], row["failure_boundary"], row["policy"]) == (None, "budget", "person")
    (decision,) = fresh.lake.read(
        "verdicts", where={"trajectory_id": row["trajectory_id"], "gate": "route"}
    ).to_pylist()
    assert decision["route"] == "none"


def test_until_the_first_screen_a_session_shows_its_task_s_name_and_no_template(fresh: Place) -> None:
    (task,) = tasks_named(fresh.config, ["fake/two-steps"])
    planned = PlannedTrajectory("lake", "desk", 0, task, 3, "person", "explorer")
    assert "{}" in task.instruction
    begun = LiveSession("s", planned, "ada", "explorer")
    assert begun.asks == "two-steps"
    begun.turn("asking", instruction='Click "Yes".')
    assert begun.asks == 'Click "Yes".'


def test_of_two_pages_on_one_step_one_decides_and_the_other_is_told(client: TestClient, fresh: Place) -> None:
    name = begin(client)
    shown = state(client, name, "asking")
    assert client.get(f"/screenshot/{shown['screen']['screenshot']}").status_code == 200
    answer = {"person": "ada", "number": shown["number"], "decision": "override", "action": MISS, "thought": "Beside."}
    assert client.post(f"/api/live/{name}", json=answer).status_code == 202
    assert client.post(f"/api/live/{name}", json={**answer, "person": "bob"}).status_code == 409
    bad = client.post(f"/api/live/{name}", json={**answer, "person": "bob", "thought": "a\x1bb"})
    assert bad.status_code == 422 and "`thought`" in bad.json()["error"]
    shown = state(client, name, "asking")
    assert client.post(f"/api/live/{name}", json={**answer, "decision": "accept"}).status_code == 409
    assert client.post(f"/api/live/{name}/end", json={"person": "ada"}).status_code == 202
    ended = state(client, name, "ended")
    assert ended["result"]["failure_reason"] == "ended by ada"
    assert ended["decided"] == {"person": "ada", "decision": "override"}
    (review,) = fresh.lake.read("reviews").to_pylist()
    assert (review["person"], review["decision"], review["thought"], review["step"]) == (
        "ada",
        "override",
        "Beside.",
        0,
    )
    assert review["original_action"] and fresh.lake.count("pairs") == 1


def test_the_end_of_the_desk_stores_what_its_sessions_have(fresh: Place) -> None:
    with TestClient(make_app(fresh.config, fresh.lake), "http://127.0.0.1:8750") as client:
        shown = state(client, begin(client), "asking")
        answer = {"person": "ada", "number": shown["number"], "decision": "override", "action": MISS}
        assert client.post(f"/api/live/{shown['name']}", json=answer).status_code == 202
        state(client, shown["name"], "asking")
    (row,) = fresh.lake.read("trajectories", where={"trajectory_id": shown["trajectory"]}).to_pylist()
    assert (row["failure_reason"], row["n_steps"]) == ("the desk was ended", 1)


def test_an_override_may_say_what_a_correction_may_and_half_a_character_is_written_out(fresh: Place) -> None:
    with TestClient(make_app(fresh.config, fresh.lake), "http://127.0.0.1:8750") as client:
        shown = state(client, begin(client), "asking")
        page, good = f"/api/live/{shown['name']}", {"person": "ada", "number": shown["number"], "decision": "override"}
        for changes, named in (
            ({"thought": "Why.\nAction: wait()\n"}, "`thought`"),
            ({"thought": "a\x1bb"}, "`thought`"),
            ({"thought": "x" * 20_001}, "`thought`"),
            ({"action": {"type": "type", "content": "x" * 300_000}}, "`action`"),
            ({"action": {"type": "press", "key": "a\x00b"}}, "`action.key`"),
            ({"action": None}, "`action`"),
        ):
            refused = client.post(page, json={**good, "action": MISS, **changes})
            assert refused.status_code == 422 and named in refused.json()["error"], refused.text
        sent = {**good, "action": {"type": "hotkey", "key": "Ctrl+C"}, "thought": "a\ud800b"}
        headers = {"content-type": "application/json"}
        assert client.post(page, content=json.dumps(sent), headers=headers).status_code == 202
        done = client.get(page, params={"seen": shown["number"]}).json()["done"][0]
        assert (done["thought"], done["actions"][0]["key"]) == ("a\\ud800b", "ctrl c")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"task_id": "fake/enter-text"}, "task_id"),  # held out
        ({"task_id": "nowhere"}, "task_id"),
        ({"seed": 1_000_000}, "seed"),
        ({"policy": "policy-9999"}, "policy"),
        ({"person": "<b>"}, "person"),
    ],
)
def test_a_session_of_what_there_is_not_is_refused_by_the_field(
    client: TestClient, changes: dict[str, Any], named: str
) -> None:
    refused = client.post("/api/live", json=BEGIN | changes)
    assert refused.status_code == 422 and f"`{named}`" in refused.json()["error"]


def test_a_session_of_an_earlier_desk_is_explained(client: TestClient) -> None:
    assert "no live session" in client.get("/live/<script>").text
    assert client.get("/api/live/none").status_code == 422
