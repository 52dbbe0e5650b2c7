"""The order of the queue, what a decision takes out of it, and the funnel."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from starlette.testclient import TestClient

from apps.desk.openings import OPEN_S, Openings
from apps.desk.pages import funnel_of
from apps.desk.queue import Queue, Rated, spread
from apps.desk.views import item_of
from storage.lake import Lake
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import Place

NOW = datetime(2026, 2, 1, tzinfo=UTC)


def say(lake: Lake, name: str, gate: str, passed: bool, **more: Any) -> None:
    iteration = lake.read("trajectories", ["iteration"], {"trajectory_id": name})["iteration"][0].as_py()
    row = {
        "trajectory_id": name, "gate": gate, "gate_version": "2", "iteration": iteration, "passed": passed,
        "score": None, "error_step": None, "reason": "because", "route": "sft" if passed else "ct", "created_at": NOW,
        "valid_steps": None,
    }  # fmt: skip
    lake.append("verdicts", [row | more])


def names(lake: Lake, **where: Any) -> list[str]:
    found = lake.read("trajectories", ["trajectory_id"], {"iteration": 2, "policy": "explorer", **where})
    return sorted(found["trajectory_id"].to_pylist())


def test_what_contradicts_itself_comes_first_then_what_is_held_back_then_what_is_unsure(
    fresh: Place, sentence: Sentences
) -> None:
    lake = fresh.lake
    contradicted, held, unsure, certain = names(lake, success=False)[:4]
    picked = names(lake, success=True)[0]
    say(lake, picked, "people", True, reason="drawn for people, and used meanwhile")
    say(lake, contradicted, "judge", True, score=0.9)
    say(lake, held, "route", False, route="quarantine", reason="wins: nothing changed")
    say(lake, unsure, "judge", False, score=0.45)
    say(lake, certain, "judge", False, score=0.0)
    first = Queue(lake, 0.5).places(5)
    assert [one.trajectory_id for one in first if one.trajectory_id != picked][:3] == [contradicted, held, unsure]
    assert [one.why[0] for one in first if one.trajectory_id == picked] == ["drawn for review"]
    first = [one for one in first if one.trajectory_id != picked]
    sentence(first[0].why[0])
    assert "in quarantine: wins: nothing changed" in first[1].why
    assert "the judge gives 0.45" in first[2].why
    assert first[0].worth > first[1].worth > first[2].worth > first[3].worth
    assert certain != first[3].trajectory_id and first[3].policy == "policy"


def test_what_an_earlier_run_of_the_filter_drew_or_found_is_neither_queued_nor_shown(fresh: Place) -> None:
    name = names(fresh.lake, success=True)[0]
    later = {"created_at": NOW.replace(year=2027)}
    say(fresh.lake, name, "people", True, reason="drawn for people, and used meanwhile")
    say(fresh.lake, name, "judge", True, reason="it is done")
    say(fresh.lake, name, "route", True, gate_version="people@2", **later)
    (place,) = [one for one in Queue(fresh.lake, 0.5).places(100) if one.trajectory_id == name]
    assert "drawn for review" not in place.why
    gates = {one.gate for one in item_of(fresh.lake, name).verdicts}
    assert "judge" in gates and "people" not in gates


def test_an_older_iteration_s_label_is_worth_less_and_environment_failures_are_left_out(
    fresh: Place, sentence: Sentences
) -> None:
    places = Queue(fresh.lake, 0.5).places(100)
    assert len(places) == 60 and {one.iteration for one in places[:20]} == {2}
    failed = {one.iteration: one.worth for one in places if one.policy == "policy" and not one.success}
    assert failed[2] == 2 * failed[1] == 4 * failed[0]
    sentence(places[0].why)


def test_pages_of_the_queue_follow_each_other_and_can_be_of_one_task(fresh: Place) -> None:
    queue = Queue(fresh.lake, 0.5)
    everything = [one.trajectory_id for one in queue.places(60)]
    assert [one.trajectory_id for start in range(0, 60, 7) for one in queue.places(7, start)] == everything
    assert {one.task_id for one in queue.places(60, task="fake/two-steps")} == {"fake/two-steps"}
    assert {one.iteration for one in queue.places(60, iteration=1)} == {1}


def test_next_and_previous_go_on_from_the_item_wherever_a_new_order_has_put_it(
    desk: TestClient, first: dict[str, Any], fresh: Place
) -> None:
    order = [one.trajectory_id for one in Queue(fresh.lake, 0.5).places(10)]

    def gone_to(name: str, at: int, by: int) -> str:
        answer = desk.get(f"/queue/{at}?of={name}&by={by}", follow_redirects=False)
        return answer.headers["location"].split("/")[2].split("?")[0]

    assert gone_to(order[3], 3, 1) == order[4] and gone_to(order[3], 3, -1) == order[2]
    assert gone_to(order[3], 2, 1) == order[4]  # it was the third when it was opened
    assert gone_to(order[3], 4, -1) == order[2]
    assert gone_to("decided", 3, 1) == order[3] and gone_to("decided", 3, -1) == order[2]  # it has left
    assert desk.get(f"/queue/3?of={order[3]}&by=7").status_code == 422


def test_people_who_go_on_at_the_same_moment_get_another_item_each(fresh: Place) -> None:
    for name in names(fresh.lake, success=True)[:1]:
        say(fresh.lake, name, "judge", False, score=0.9)  # nothing is about as worthy, so that nobody is spread
    queue, people = Queue(fresh.lake, 0.5), [f"person {number}" for number in range(8)]
    order = [one.trajectory_id for one in queue.places(20)]
    with ThreadPoolExecutor(len(people)) as at_once:
        sent = list(at_once.map(lambda person: queue.send(0, 1, person), people))
    assert {one[1].trajectory_id for one in sent if one} == set(order[:8])
    back = queue.send(7, -1, "another")
    assert back is not None and back[1].trajectory_id == order[7]  # all before it are open
    assert [one.open_with for one in queue.places(1)] != [""]


def test_an_import_has_one_name_on_every_page(desk: TestClient, fresh: Place) -> None:
    row = fresh.lake.read("trajectories", where={"iteration": 2, "success": True}).to_pylist()[0]
    steps = fresh.lake.read("steps", where={"trajectory_id": row["trajectory_id"]}).to_pylist()
    brought = {"trajectory_id": "brought", "iteration": -2}
    fresh.lake.append("trajectories", [{**row, **brought, "policy": "import"}])
    fresh.lake.append("steps", [{**step, **brought} for step in steps])
    for page in ("/queue?iteration=-2", "/review/brought", "/funnel"):
        text = desk.get(page).text.lower()
        assert "import 1" in text and "iteration -2" not in text, page


def test_what_was_decided_on_leaves_the_queue_at_once_and_comes_back_when_that_is_undone(
    desk: TestClient, first: dict[str, Any]
) -> None:
    decision = {"trajectory_id": first["trajectory_id"], "revision": 0, "person": "ada", "decision": "reject"}
    written = desk.post("/api/reviews", json=decision)
    assert written.status_code == 201
    assert first["trajectory_id"] not in desk.get("/queue").text
    undo = {**decision, "revision": 1, "decision": "undo", "undoes": written.json()["review_id"]}
    assert desk.post("/api/reviews", json=undo).status_code == 201
    assert desk.get("/api/queue").json()[0]["trajectory_id"] == first["trajectory_id"]


def test_a_second_decision_on_the_same_state_is_answered_with_the_first(
    desk: TestClient, first: dict[str, Any]
) -> None:
    decision = {"trajectory_id": first["trajectory_id"], "revision": 0, "person": "ada", "decision": "reject"}
    assert desk.post("/api/reviews", json={**decision, "note": "no"}).status_code == 201
    second = desk.post("/api/reviews", json={**decision, "person": "bob", "decision": "accept"})
    assert second.status_code == 409 and second.json()["revision"] == 1
    assert [(one["person"], one["decision"], one["note"]) for one in second.json()["others"]] == [
        ("ada", "reject", "no")
    ]


def test_a_place_of_the_queue_is_the_item_that_stands_there(desk: TestClient, first: dict[str, Any]) -> None:
    assert f'href="/trajectory/{first["trajectory_id"]}"' in desk.get("/queue/0").text
    assert desk.get("/queue/9999", follow_redirects=False).headers["location"] == "/queue"


def test_steps_are_numbered_as_the_gates_number_them_from_0_on(desk: TestClient, first: dict[str, Any]) -> None:
    page = desk.get(f"/review/{first['trajectory_id']}?step=0").text
    assert '<span id="number">0</span>' in page and 'data-step="0"' in page and ">0</a></li>" in page
    assert desk.post("/api/reviews", json={
        "trajectory_id": first["trajectory_id"], "revision": 0, "person": "ada", "decision": "error_step", "step": 0,
    }).is_success  # fmt: skip
    assert "error step at step 0" in desk.get(f"/review/{first['trajectory_id']}").text


def test_a_bad_decision_is_refused_by_the_name_of_its_field(desk: TestClient, first: dict[str, Any]) -> None:
    good = {
        "trajectory_id": first["trajectory_id"], "revision": 0, "person": "ada", "decision": "correct", "step": 0,
        "action": {"type": "click", "x": 0.5, "y": 0.5},
    }  # fmt: skip

    def sent(fields: dict[str, Any]) -> Any:
        return desk.post("/api/reviews", content=json.dumps(fields), headers={"content-type": "application/json"})

    for changes, named in (
        ({"decision": "burn"}, "`decision`"),
        ({"step": 7}, "`step`"),
        ({"action": {"type": "click", "x": 2, "y": 0}}, "`action.click.x`"),
        ({"action": {"type": "click", "x": True, "y": 0}}, "`action.click.x`"),
        ({"action": {"type": "teleport"}}, "`action`"),
        ({"decision": "error_step"}, "`action`"),
        ({"thought": "x" * 30_000}, "`thought`"),
        ({"action": {"type": "press", "key": "a\x00b"}}, "`action.key`"),
        ({"action": {"type": "hotkey", "key": "ctrl banana"}}, "`action.key`"),
        ({"action": {"type": "hotkey", "key": ""}}, "`action.hotkey.key`"),
        ({"action": {"type": "press", "key": "ctrl c"}}, "`action.key`"),
        ({"action": {"type": "release", "key": "ctrl c"}}, "`action.key`"),
        ({"action": {"type": "press", "key": "banana"}}, "`action.key`"),
        ({"trajectory_id": "\ud800"}, "`trajectory_id`"),
        ({"colour": "red"}, "`colour`"),
        ({"revision": None}, "`revision`"),
    ):
        refused = sent({**good, **changes})
        assert refused.status_code == 422 and named in refused.json()["error"], refused.text
    half = {**good, "thought": "a\ud800b", "note": "\ud800", "action": {"type": "hotkey", "key": "ctrl+C"}}
    assert [sent(half).status_code for _ in range(2)] == [201, 201]  # sent again it is the same one
    assert '"key":"ctrl c"' in sent(half).json()["reviews"][0]["action"]


def test_a_bad_decision_on_a_state_that_is_no_more_is_still_refused_by_the_name_of_its_field(
    desk: TestClient, first: dict[str, Any]
) -> None:
    reject = {"trajectory_id": first["trajectory_id"], "revision": 0, "person": "ada", "decision": "reject"}
    assert desk.post("/api/reviews", json=reject).status_code == 201
    for changes, named in (
        ({"step": 0}, "`step`"),
        ({"note": "a\x1bb"}, "`note`"),
        ({"person": "<b>"}, "`person`"),
        ({"decision": "correct", "step": 7, "action": {"type": "wait"}}, "`step`"),
    ):
        refused = desk.post("/api/reviews", json={**reject, "person": "bob", "decision": "accept", **changes})
        assert refused.status_code == 422 and named in refused.json()["error"], refused.text


def test_the_funnel_counts_what_comes_through_and_links_examples_of_what_does_not(
    desk: TestClient, first: dict[str, Any], fresh: Place
) -> None:
    newest = funnel_of(fresh.lake)[0]
    assert (newest.iteration, newest.counts) == (
        2, {"collected": 24, "valid": 20, "judged": 20, "reviewed": 0, "selected": 12, "trained": 0},
    )  # fmt: skip
    (valid,) = [one for one in newest.drops if one.stage == "valid"]
    assert (valid.gate, valid.why, valid.n, len(valid.examples)) == ("sandbox", "the box died", 4, 3)
    accept = {"trajectory_id": first["trajectory_id"], "revision": 0, "person": "ada", "decision": "accept"}
    assert desk.post("/api/reviews", json=accept).status_code == 201
    newest = funnel_of(fresh.lake)[0]
    assert (newest.counts["reviewed"], newest.counts["selected"]) == (1, 13)
    assert f'href="/trajectory/{valid.examples[0]}"' in desk.get("/funnel").text


def test_the_funnel_counts_every_reason_however_many_there_are(fresh: Place) -> None:
    failed = names(fresh.lake, success=False) + names(fresh.lake, success=False, policy="policy")
    for name, letter in zip(failed, "abcdefgh", strict=True):
        say(fresh.lake, name, "route", False, route="ct", reason=f"duplicates: the same as {letter}", gate_version="3")
    newest = funnel_of(fresh.lake)[0]
    lost = [one for one in newest.drops if one.stage == "selected"]
    assert sum(one.n for one in lost) == newest.counts["valid"] - newest.counts["selected"]
    (others,) = [one for one in lost if one.why == "other reasons"]
    assert others.gate == "duplicates" and others.n > 1 and others.examples


def test_tasks_take_turns_by_what_their_labels_are_worth(fresh: Place) -> None:
    lake = fresh.lake
    for name in names(lake, success=False, task_id="fake/two-steps"):
        say(lake, name, "judge", True, score=0.9)
    first = Queue(lake, 0.5).places(4)
    assert first[0].task_id == first[1].task_id == "fake/two-steps"
    assert {one.task_id for one in first} == {"fake/two-steps", "fake/click-target"}


def test_people_who_are_here_together_begin_at_different_places_and_see_what_others_have_open(desk: TestClient) -> None:
    def offered(person: str) -> list[dict[str, Any]]:
        return desk.get("/api/queue", params={"person": person}).json()

    ada, bob = (offered(name)[0]["trajectory_id"] for name in ("ada", "bob"))
    assert ada != bob and offered("ada")[0]["trajectory_id"] == ada and offered("ada")[0]["worth"] == 0.75
    desk.get(f"/api/trajectories/{bob}", params={"person": "ada"})
    seen = offered("bob")
    assert seen[0]["trajectory_id"] != bob
    assert [one["open_with"] for one in seen if one["trajectory_id"] == bob] == ["ada"]
    desk.cookies.set("person", "bob")
    assert "open with ada" in desk.get("/queue").text and "open with ada" in desk.get(f"/review/{bob}").text
    desk.get(f"/api/trajectories/{ada}", params={"person": "ada"})
    assert "open with" not in desk.get(f"/trajectory/{bob}").text and offered("bob")[0]["open_with"] == ""


def test_who_has_gone_holds_nothing_and_a_lone_person_gets_the_order_as_it_is() -> None:
    time = [0.0]
    openings = Openings(lambda: time[0])
    assert (openings.number("ada"), openings.number("bob"), openings.number("ada"), openings.number("")) == (0, 1, 0, 0)
    openings.open("ada", "t")
    assert openings.with_others("bob") == {"t": "ada"} and openings.with_others("ada") == {}
    time[0] = OPEN_S + 1
    assert openings.number("bob") == 0 and openings.with_others("bob") == {}
    rows = [
        Rated.model_construct(trajectory_id=name, worth=worth) for name, worth in (("a", 1.0), ("b", 0.9), ("c", 0.5))
    ]
    assert spread(rows, 0, {}) == rows and spread(rows, 1, {})[0] == rows[1] and spread(rows, 2, {})[0] == rows[0]
    assert [row.trajectory_id for row in spread(rows, 0, {"a": "ada"})] == ["b", "a", "c"]
    assert spread([], 3, {}) == []


def test_who_corrects_a_step_is_told_whether_a_sandbox_verified_it_and_where(
    desk: TestClient, first: dict[str, Any], fresh: Place
) -> None:
    name = first["trajectory_id"]
    correct = {
        "trajectory_id": name, "revision": 0, "person": "ada", "decision": "correct", "step": 0,
        "action": {"type": "click", "x": 0.5, "y": 0.5},
    }  # fmt: skip
    (written,) = desk.post("/api/reviews", json=correct).json()["reviews"]
    assert (written["state"], written["tried_by"]) == ("unverified", None)
    page = desk.get(f"/trajectory/{name}").text
    assert (
        "not tried" in page
        and ("the recorded step stays" in page) == (written["replaces"] is False) == first["success"]
    )
    lake, tried = fresh.lake, "0" * 24
    (trajectory,) = lake.read("trajectories", where={"trajectory_id": name}).to_pylist()
    (step, *_) = lake.read("steps", where={"trajectory_id": name}).to_pylist()
    made = {"trajectory_id": tried, "policy": "correction", "continues": name, "replayed": 0, "n_steps": 1}
    ended = {"success": False, "termination": "done", "failure_boundary": None, "failure_reason": None}
    lake.append("trajectories", [{**trajectory, **made, **ended}])
    lake.append(
        "steps", [{**step, "trajectory_id": tried, "step": 0, "actor": "person", "actions": [written["action"]]}]
    )
    (found,) = desk.get(f"/api/trajectories/{name}").json()["reviews"]
    assert (found["state"], found["tried_by"]) == ("refuted", tried)
    page = desk.get(f"/trajectory/{name}").text
    assert '<span class="tag">refuted</span>' in page and f'href="/trajectory/{tried}"' in page
