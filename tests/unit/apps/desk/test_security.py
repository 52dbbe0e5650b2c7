"""Who may ask the desk, what it takes from them, and that what others wrote is never more than text."""

import re
import socket
from typing import Any

import pytest
from starlette.testclient import TestClient

from apps.desk.app import make_app
from apps.desk.serve import is_loopback, serve, token_for
from schemas.failure import FlywheelError, UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import Place

TOKEN = "a-long-random-text"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \" ' {{ 7 * 7 }}"


@pytest.fixture(scope="module")
def guarded(place: Place) -> TestClient:
    return TestClient(make_app(place.config, place.lake, TOKEN), "http://10.0.0.7:8750", follow_redirects=False)


@pytest.fixture(scope="module")
def here(place: Place) -> TestClient:
    return TestClient(make_app(place.config, place.lake), "http://127.0.0.1:8750")


@pytest.mark.parametrize(
    "path", ["/", "/queue", "/funnel", "/api/queue", "/static/desk.js", f"/screenshot/{'a' * 64}", "/nowhere"]
)
def test_nothing_is_shown_without_the_token(guarded: TestClient, path: str) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "flywheel_desk=wrong"}):
        assert guarded.get(path, headers=headers).status_code == 401
    assert guarded.get(path, params={"token": "wr\u00f6ng"}).status_code == 401


def test_a_token_in_the_address_becomes_a_cookie_that_scripts_and_other_sites_do_not_have(guarded: TestClient) -> None:
    answer = guarded.get("/funnel", params={"token": TOKEN, "page": "1"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/funnel?page=1")
    assert re.search(r"flywheel_desk=.*HttpOnly.*SameSite=strict", answer.headers["set-cookie"])
    for path in ("//evil.example/", "///evil.example/"):
        guarded.cookies.clear()
        away = guarded.get(f"http://10.0.0.7:8750{path}", params={"token": TOKEN})
        assert (away.status_code, away.headers["location"]) == (303, "/evil.example/")
    assert guarded.get("/funnel").status_code == 200
    guarded.cookies.clear()
    assert guarded.get("/api/queue", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_a_name_that_another_site_points_here_is_not_answered(here: TestClient) -> None:
    assert here.get("/queue", headers={"host": "evil.example:8750"}).status_code == 421
    assert here.get("/queue", headers={"host": "localhost:8750"}).status_code == 200


@pytest.mark.parametrize("host", ["[", "[::1", "a]b", "[nothing]"])
def test_a_host_that_is_no_name_is_refused_on_every_page_and_with_a_token_too(
    here: TestClient, guarded: TestClient, host: str
) -> None:
    for path in ("/", "/queue", "/api/queue"):
        assert here.get(path, headers={"host": host}).status_code == 421
        assert guarded.get(path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://[::1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_page_of_another_site_can_decide_nothing(here: TestClient, headers: dict[str, str]) -> None:
    assert here.post("/api/reviews", json={}, headers=headers).status_code == 403


def test_a_page_of_another_site_cannot_show_our_pictures(here: TestClient) -> None:
    embedded = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert here.get("/static/icon.svg", headers=embedded).status_code == 403
    assert here.get("/queue", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status_code == 200


def test_only_json_of_a_sensible_size_is_read(here: TestClient) -> None:
    def post(**given: Any) -> int:
        return here.post("/api/reviews", **given).status_code

    assert post(data={"decision": "accept"}) == 415
    assert post(content=b"x" * (1 << 20) + b"x", headers={"content-type": "application/json"}) == 413
    assert post(content=(part for part in [b"{}"]), headers={"content-type": "application/json"}) == 411
    broken = here.post("/api/reviews", content=b'{"decision":', headers={"content-type": "application/json"})
    assert broken.status_code == 422 and broken.json() == {"error": "the body is not JSON, at byte 12"}


@pytest.mark.parametrize(("body", "byte"), [(b"{nothing", 1), ('{"person": "\u00e9", }'.encode(), 17)])
def test_a_body_that_is_no_json_is_refused_by_the_byte_where_it_ends_to_be(
    here: TestClient, body: bytes, byte: int
) -> None:
    refused = here.post("/api/reviews", content=body, headers={"content-type": "application/json"})
    assert refused.json() == {"error": f"the body is not JSON, at byte {byte}"}


@pytest.mark.parametrize("number", ["--5", "five", "9" * 23, str(2**31), "-" + "9" * 23])
def test_an_iteration_that_cannot_be_is_refused_by_its_name(here: TestClient, number: str) -> None:
    for path in ("/queue", "/api/queue", f"/screenshot/{'a' * 64}"):
        refused = here.get(path, params={"iteration": number})
        assert refused.status_code == 422 and "`iteration`" in refused.text.replace("&#96;", "`")
    assert here.get("/queue", params={"iteration": "", "task": ""}).status_code == 200
    assert here.get("/queue", params={"iteration": "-1"}).status_code == 200
    assert here.get("/queue/" + "9" * 23).status_code == 422


@pytest.mark.parametrize("field", ["step", "revision", "seconds"])
def test_a_number_of_a_decision_that_no_column_holds_is_refused_by_its_name(here: TestClient, field: str) -> None:
    sent = {"trajectory_id": "t", "revision": 0, "person": "ada", "decision": "error_step", "step": 0, field: 10**30}
    refused = here.post("/api/reviews", json=sent)
    assert refused.status_code == 422 and f"`{field}`" in refused.json()["error"]


def test_every_answer_forbids_what_is_not_ours(here: TestClient) -> None:
    for path in ("/", "/queue", "/nowhere", "/static/desk.css", "/api/queue"):
        policy = here.get(path).headers["content-security-policy"]
        assert "default-src 'self'" in policy and "unsafe" not in policy
    page = here.get("/queue").text
    assert not re.findall(r"<script(?![^>]*\bsrc=\"/static/)|\son\w+=|\sstyle=|https?://(?!www\.w3\.org)", page)


@pytest.mark.parametrize("name", ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "A" * 64, "a" * 63, "a" * 64])
def test_a_screenshot_is_one_of_the_lake_s_or_none(here: TestClient, name: str) -> None:
    assert here.get(f"/screenshot/{name}").status_code == 404


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py"])
def test_nothing_outside_of_the_static_folder_is_served(here: TestClient, path: str) -> None:
    assert here.get(path).status_code == 404


def test_a_trajectory_that_does_not_exist_is_named_and_escaped(here: TestClient) -> None:
    answer = here.get("/trajectory/<script>alert(1)<")
    assert answer.status_code == 404 and "<script>alert" not in answer.text
    assert here.get("/api/trajectories/none").json() == {
        "error": "`trajectory_id`: there is no trajectory 'none'. `flywheel trajectories` finds ids; "
        "the first 8 characters of one are enough."
    }


def test_what_pages_and_models_write_is_text_wherever_it_stands(
    desk: TestClient, first: dict[str, Any], fresh: Place
) -> None:
    lake, name = fresh.lake, first["trajectory_id"]
    (row,) = lake.read("trajectories", where={"trajectory_id": name}).to_pylist()
    lake.upsert("trajectories", [{**row, "instruction": HOSTILE, "policy_version": HOSTILE}])
    (step,) = lake.read("steps", where={"trajectory_id": name}).to_pylist()
    lake.upsert("steps", [{**step, "thought": HOSTILE, "raw_text": HOSTILE, "action_error": HOSTILE}])
    note = {"trajectory_id": name, "revision": 0, "person": "ada", "decision": "note", "note": HOSTILE}
    assert desk.post("/api/reviews", json=note).status_code == 201
    again = TestClient(make_app(fresh.config, fresh.lake), "http://127.0.0.1:8750")  # which has kept no order yet
    for path in ("/", "/queue", f"/review/{name}", f"/trajectory/{name}", f"/aloud/{name}", "/live", "/funnel"):
        page = again.get(path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text and "<img src=x" not in page.text
    assert "{{ 7 * 7 }}" in again.get("/queue").text and "{{ 7 * 7 }}" in again.get(f"/trajectory/{name}").text
    assert desk.get(f"/api/trajectories/{name}").json()["instruction"] == HOSTILE


def test_elsewhere_than_on_this_machine_a_token_is_required(
    monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    monkeypatch.delenv("DESK", raising=False)
    assert token_for("127.0.0.1", "DESK") is None and token_for("localhost", "DESK") is None
    for host in ("0.0.0.0", "::", "192.168.1.5", "desk.example"):
        assert not is_loopback(host)
        with pytest.raises(UsageError, match="DESK"):
            token_for(host, "DESK")
    monkeypatch.setenv("DESK", "short")
    with pytest.raises(UsageError, match="16"):
        token_for("127.0.0.1", "DESK")
    for odd in ("pässwörter-ünd-€-mehr", "sixteen or more words"):
        monkeypatch.setenv("DESK", odd)
        with sentence.raises(UsageError):
            token_for("127.0.0.1", "DESK")
    monkeypatch.setenv("DESK", TOKEN)
    assert token_for("0.0.0.0", "DESK") == TOKEN


def test_a_recognizer_that_is_none_is_refused_before_anything_is_served(place: Place) -> None:
    desk = place.config.desk.model_copy(update={"speech": "whisper"})
    with pytest.raises(UsageError, match=r"`desk\.speech`.*whisper"):
        serve(place.config.model_copy(update={"desk": desk}), port=0)


def test_a_port_that_is_taken_is_named_with_the_key_that_every_command_reads(place: Place) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(FlywheelError, match=rf"port {port}: .*`desk\.port=0`"):
            serve(place.config, port=port)
