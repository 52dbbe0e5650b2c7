"""Messages by Prefect's automations, to a receiver as Slack has it, and by e-mail."""

import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from prefect import flow, get_client
from prefect.blocks.notifications import CustomWebhookNotificationBlock, SlackWebhook
from prefect.states import Crashed, Running

from apps.schedule import automations
from apps.schedule.deployments import deploy, place_of, run_now
from schemas.config.sections import LakeConfig
from schemas.failure import GateRefused, UsageError
from storage.lake import Lake
from tasks.running.run_page import DECIDED, emit, emit_failure
from tests.fixtures.sentences import Sentences

WAIT_S = 60.0


@contextmanager
def slack() -> Iterator[tuple[str, list[str]]]:
    """A receiver that takes messages as Slack's incoming webhooks do, and its address."""
    got: list[str] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["text"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: Any) -> None:
            """Keeps the test's output quiet."""

    with HTTPServer(("127.0.0.1", 0), Receiver) as server, _serving(server):
        yield f"http://127.0.0.1:{server.server_port}/services/T0/B0/X0", got


@contextmanager
def mail_server() -> Iterator[tuple[int, list[str]]]:
    """A server that takes e-mail by SMTP, and its port."""
    got: list[str] = []

    class Receiver(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline():
                if line.upper().startswith(b"DATA"):
                    self.wfile.write(b"354 go on\r\n")
                    got.append(b"".join(iter(self.rfile.readline, b".\r\n")).decode())
                self.wfile.write(b"221 bye\r\n" if line.upper().startswith(b"QUIT") else b"250 ok\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), Receiver) as server, _serving(server):
        yield server.server_address[1], got


@contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


def until(got: list[str], *parts: str) -> str:
    """Waits for a message with all of the parts."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        for one in got:
            if all(part in one for part in parts):
                return one
        time.sleep(0.1)
    raise AssertionError(f"no message with {parts}: {got}")


@flow(validate_parameters=False)
def promoted(lake: Lake, policy: str) -> None:
    """Emits the event of a promotion, as a run does."""
    assert emit(lake, DECIDED["promote"], {"say": f"{policy} is the champion"})


@flow(validate_parameters=False)
def refused(lake: Lake) -> None:
    """Emits the event of a refusal, as a run does."""
    emit_failure(lake, 3, "quality", GateRefused("steps: not null", "Delete the rows."))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake whose deployments the server has."""
    monkeypatch.chdir(tmp_path)
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake"), min_free_mb=1))
    with get_client(sync_client=True) as client:
        deploy(client, place_of(None, (), lake), replace=True)
    return lake


@pytest.mark.slow
def test_a_refusal_a_dead_run_and_a_promotion_arrive_in_slack(lake: Lake, tmp_path: Path) -> None:
    other = Lake.open(LakeConfig(uri=str(tmp_path / "other"), min_free_mb=1))
    with slack() as (url, got), get_client(sync_client=True) as client:
        text = {"text": "*{{subject}}*\n{{body}}"}
        CustomWebhookNotificationBlock(name="Slack", url=url, json_data=text).save("alerts", overwrite=True)
        made = automations.notify(client, "custom-webhook/alerts")
        assert automations.notify(client, "custom-webhook/alerts") == made and len(made) == 3
        assert [len(client.read_automations_by_name(name)) for name in made] == [1, 1, 1]
        promoted(other, "policy-0009")
        promoted(lake, "policy-0001")
        refused(lake)
        run = run_now(client, "retrain", {})
        client.set_flow_run_state(run, Running(), force=True)
        client.set_flow_run_state(run, Crashed(message="its machine went away"), force=True)
        assert lake.uri in until(got, "*flywheel: a policy is promoted*", "policy-0001 is the champion")
        until(got, "*flywheel: the quality gate refuses an iteration*", "steps: not null")
        until(
            got,
            "*flywheel: a run fails or dies*",
            "retrain (",
            "Crashed: its machine went away",
            f"/runs/flow-run/{run}",
        )
        assert not [one for one in got if "policy-0009" in one]


@pytest.mark.slow
def test_a_message_arrives_as_an_e_mail(lake: Lake) -> None:
    with mail_server() as (port, got), get_client(sync_client=True) as client:
        url = f"mailto://127.0.0.1:{port}?from=flywheel@example.org&to=ada@example.org"
        SlackWebhook(url=url).save("mail", overwrite=True)  # pyright: ignore[reportArgumentType]
        automations.notify(client, "slack-webhook/mail")
        promoted(lake, "policy-0002")
        mail = until(got, "Subject: flywheel: a policy is promoted", "policy-0002")
        assert "ada@example.org" in mail


def test_a_block_that_the_server_lacks_is_refused(lake: Lake, sentence: Sentences) -> None:
    with get_client(sync_client=True) as client:
        with sentence.raises(UsageError, "has no block `slack-webhook/nobody`"):
            automations.notify(client, "slack-webhook/nobody")
        with sentence.raises(UsageError, "`alerts` is not of the form"):
            automations.notify(client, "alerts")
