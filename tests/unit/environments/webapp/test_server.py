"""What serves built applications: files and the contract, each session for itself."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from environments.webapp.host import KEY, AppServer

STATE = {"title": "Mine", "notes": []}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AppServer]:
    for name in ("notes", "other"):
        (tmp_path / name / "assets").mkdir(parents=True)
        (tmp_path / name / "index.html").write_text(f"<title>{name}</title>")
        (tmp_path / name / "assets" / "app.js").write_text("1")
    (tmp_path / "secret.txt").write_text("secret")
    served = AppServer({name: tmp_path / name for name in ("notes", "other")})
    yield served
    served.close()


def ask(
    server: AppServer, method: str, path: str, ours: bool = False, name: str = "notes", **more: object
) -> httpx.Response:
    headers = {"host": f"{name}.localhost"} | ({KEY: server.key} if ours else {})
    return httpx.request(method, f"http://{server.address}{path}", headers=headers, trust_env=False, **more)  # type: ignore[arg-type]


def begin(server: AppServer, sid: str = "s1") -> None:
    assert ask(server, "POST", f"/post?sid={sid}", True, json={"action": "set", "state": STATE}).status_code == 200


def test_a_session_is_set_read_by_its_page_changed_and_told_apart(server: AppServer):
    begin(server)
    answer = ask(server, "GET", "/state?sid=s1").json()
    assert answer == {"stored_state": STATE, "has_custom_state": True}
    changed = {**STATE, "title": "Yours", "seen": 1}
    assert ask(server, "POST", "/post?sid=s1", json={"action": "set_current", "state": changed}).status_code == 200
    states = ask(server, "GET", "/go?sid=s1", True).json()
    assert (states["initial_state"], states["current_state"]) == (STATE, changed)
    assert states["state_diff"] == {"title": {"modified": "Yours"}, "seen": {"added": 1}}


def test_no_page_can_begin_a_session_or_look_at_what_it_is_verified_by_or_end_one(server: AppServer):
    begin(server)
    assert ask(server, "POST", "/post?sid=new", json={"action": "set", "state": {}}).status_code == 404
    assert ask(server, "GET", "/go?sid=s1").status_code == 404
    ask(server, "POST", "/post?sid=s1", json={"action": "set", "state": {"title": "Faked"}})
    ask(server, "POST", "/post?sid=s1", json={"action": "set_current", "state": STATE, "initial_state": {"title": "?"}})
    ask(server, "POST", "/end?sid=s1")
    states = ask(server, "GET", "/go?sid=s1", True).json()
    assert states["initial_state"] == STATE


def test_a_session_is_of_one_application_and_another_s_id_is_no_use(server: AppServer):
    begin(server)
    assert ask(server, "GET", "/state?sid=s1", name="other").json()["has_custom_state"] is False
    assert ask(server, "GET", "/state?sid=s2").json()["has_custom_state"] is False
    assert ask(server, "GET", "/state").json()["has_custom_state"] is False


def test_a_session_that_was_ended_is_gone(server: AppServer):
    begin(server)
    ask(server, "POST", "/end?sid=s1", True)
    assert ask(server, "GET", "/go?sid=s1", True).status_code == 404
    assert ask(server, "POST", "/post?sid=s1", json={"action": "set_current", "state": {}}).status_code == 404


def test_files_are_served_the_application_s_own_addresses_open_it_and_nothing_else_is(server: AppServer):
    for path in ("/", "/board/b1", "/index.html"):
        assert "<title>notes</title>" in ask(server, "GET", path).text
    assert ask(server, "GET", "/assets/app.js").text == "1"
    assert ask(server, "GET", "/assets/none.js").status_code == 404
    assert ask(server, "GET", "/", name="other").text == "<title>other</title>"
    assert ask(server, "GET", "/", name="elsewhere").status_code == 404
    for path in ("/../secret.txt", "/%2e%2e/secret.txt", "/assets/%2e%2e/%2e%2e/secret.txt"):
        assert "secret" not in ask(server, "GET", path).text


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"action":"set_current"}', b'{"action":"set_current","state":[]}']
)
def test_what_is_no_state_is_refused_and_changes_nothing(server: AppServer, body: bytes):
    begin(server)
    assert ask(server, "POST", "/post?sid=s1", content=body).status_code == 400
    assert ask(server, "GET", "/go?sid=s1", True).json()["current_state"] == STATE


@pytest.mark.parametrize("length", ["content-length: 99999999999", "transfer-encoding: chunked"])
def test_a_body_that_is_too_long_or_does_not_say_how_long_it_is_is_refused_before_it_is_read(
    server: AppServer, length: str
):
    begin(server)
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(f"POST /post?sid=s1 HTTP/1.1\r\nhost: notes.localhost\r\n{length}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_it_listens_on_this_machine_alone_and_not_at_all_once_it_is_closed(server: AppServer):
    assert server.address.startswith("127.0.0.1:")
    server.close()
    with pytest.raises(httpx.ConnectError):
        ask(server, "GET", "/")
