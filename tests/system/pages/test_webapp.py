"""Web applications in a real headless Chromium: a small one of our own, served here and at an address."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import pytest

from environments.pool import SandboxPool
from environments.webapp.environment import WebAppConfig, WebAppEnvironment, WebAppReward, WebAppSandbox
from environments.webapp.tasks import action_for
from schemas.action import Click, Wait
from schemas.observation import Outcome
from tests.processes import left

T = TypeVar("T")
FOLDER = Path(__file__).parents[2] / "webapps"
NOTES = WebAppEnvironment(
    "web", WebAppConfig(kind="webapp", folder=str(FOLDER), tasks=(str(FOLDER / "notes.toml"),), browsers=1, pages=2)
)


def with_sandboxes(
    work: Callable[[Callable[[str, int], Any]], Awaitable[T]], environment: WebAppEnvironment = NOTES
) -> T:
    async def run() -> T:
        async with SandboxPool([environment]) as pool:
            return await work(lambda template, seed: pool.lease(environment.task(template), seed))

    return asyncio.run(run())


async def played(sandbox: WebAppSandbox) -> list[Outcome]:
    """What the verifier says before the first and after every move of the task's script."""
    assert sandbox.instance is not None
    answer = [await sandbox.verify(WebAppReward())]
    for move in sandbox.instance.script:
        seen = await sandbox.observe(elements=True)
        await sandbox.perform(action_for(move, seen.elements))
        answer.append(await sandbox.verify(WebAppReward()))
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("template", ["notes-tick", "notes-add"])
def test_a_hand_that_does_what_is_asked_scores_one_and_nothing_before(template: str):
    async def work(lease: Callable[[str, int], Any]) -> list[list[Outcome]]:
        found = []
        for seed in range(3):
            async with lease(template, seed) as sandbox:
                found.append(await played(sandbox))
        return found

    for *before, last in with_sandboxes(work):
        assert all((one.done, one.reward) == (False, 0.0) for one in before)
        assert (last.done, last.reward) == (True, 1.0)


def test_the_same_seed_shows_the_same_first_picture_and_another_one_another():
    async def work(lease: Callable[[str, int], Any]) -> list[bytes]:
        found = []
        for seed in (3, 3, 4):
            async with lease("notes-add", seed) as sandbox:
                seen = await sandbox.observe()
                found.append(seen.png)
                assert (seen.width, seen.height) == (1280, 720)
        return found

    same, again, other = with_sandboxes(work)
    assert same == again != other


def test_what_one_lease_keeps_in_the_browser_no_other_finds_and_neither_its_session():
    keeping = "localStorage.kept = document.cookie = 'kept=1'; caches.open('kept').then(() => location.search)"
    finding = "caches.keys().then((found) => [localStorage.length, document.cookie, found.length, location.search])"
    reading = "fetch('/state' + %r).then((answer) => answer.json())"

    async def work(lease: Callable[[str, int], Any]) -> tuple[str, list[Any], Any]:
        async with lease("notes-add", 0) as one, lease("notes-add", 1) as other:
            own = await one.web.evaluate(keeping)
            found = await other.web.evaluate(finding)
            ended = own
        async with lease("notes-add", 0) as later:
            return own, found, await later.web.evaluate(reading % ended)

    own, found, message = with_sandboxes(work)
    assert found[:3] == [0, "", 0] and len(own) > 30 and found[3] != own
    assert message["has_custom_state"] is False


def test_links_to_other_sites_and_to_the_state_lead_nowhere():
    async def work(lease: Callable[[str, int], Any]) -> tuple[list[str], str]:
        async with lease("notes-add", 0) as sandbox:
            seen = await sandbox.observe(elements=True)
            link = next(one for one in seen.elements if one.name == "Elsewhere")
            await sandbox.perform(Click(x=link.centre[0], y=link.centre[1]))
            return [one.name for one in seen.elements], await sandbox.web.evaluate("location.origin")

    names, origin = with_sandboxes(work)
    assert "State" not in names and origin == "http://notes.localhost"


REACHING = """(async () => {
  const reach = (at) => fetch(at, { mode: "no-cors" }).then(() => "reached", () => "failed");
  const socket = (at) => new Promise((done) => {
    const one = new WebSocket(at);
    one.onopen = () => done("reached"); one.onerror = () => done("failed");
  });
  const peer = new RTCPeerConnection({ iceServers: [{ urls: "stun:127.0.0.1:@UDP" }] });
  peer.createDataChannel("x");
  await peer.setLocalDescription(await peer.createOffer());
  for (let turn = 0; turn < 250; turn++) await __page.turn();
  const found = [];
  const here = ["127.0.0.1:@TCP", "localhost:@TCP", "[::1]:@TCP", "notes.localhost:@TCP"];
  for (const at of [...here, "other.localhost", "example.org"]) found.push(await reach(`http://${at}/`));
  found.push(await reach("https://notes.localhost/"));
  found.push(await socket("ws://127.0.0.1:@TCP/"), await socket("ws://notes.localhost:@TCP/"));
  await new Promise((done) => {
    const one = new Image();
    one.onload = one.onerror = done;
    one.src = "http://127.0.0.1:@TCP/picture";
  });
  return [await reach("/index.html"), ...found];
})()"""


def test_a_page_reaches_its_application_and_nobody_else():
    asked: list[bytes] = []

    def listen(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            asked.append(b"tcp")
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(1.0)
        threading.Thread(target=listen, args=(tcp,), daemon=True).start()
        script = REACHING.replace("@TCP", str(tcp.getsockname()[1])).replace("@UDP", str(udp.getsockname()[1]))

        async def work(lease: Callable[[str, int], Any]) -> list[str]:
            async with lease("notes-add", 0) as sandbox:
                return await sandbox.web.evaluate(script)

        own, *others = with_sandboxes(work)
        with pytest.raises(TimeoutError):
            asked.append(udp.recv(100))
    assert own == "reached" and set(others) == {"failed"} and not asked


@pytest.fixture
def elsewhere() -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(FOLDER / "notes"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_application_at_an_address_may_say_in_its_page_what_it_has_come_to(elsewhere: str):
    environment = WebAppEnvironment(
        "web",
        WebAppConfig(
            kind="webapp", origins={"elsewhere": elsewhere}, tasks=(str(FOLDER / "rewarded.toml"),), browsers=1, pages=1
        ),
    )

    async def work(lease: Callable[[str, int], Any]) -> tuple[list[Outcome], str]:
        async with lease("page-title", 0) as sandbox:
            other = f"http://127.0.0.1:{int(elsewhere.rpartition(':')[2]) + 1}/"
            reached = f"fetch({other!r}, {{mode: 'no-cors'}}).then(() => 'reached', (error) => String(error))"
            assert [await sandbox.web.evaluate(one) for one in ("0 / 0", "1 / 0", "0.5")] == ["NaN", "Infinity", 0.5]
            return await played(sandbox), await sandbox.web.evaluate(reached)

    (*before, last), other = with_sandboxes(work, environment)
    assert not any(one.done for one in before)
    assert (last.done, last.reward) == (True, 1.0)
    assert "failed" in other.lower()


class Late(SimpleHTTPRequestHandler):
    """Answers `/late` after three seconds, `/slow` at once with a body that comes two seconds later, and `/never` not
    while the test lasts."""

    over = threading.Event()

    def do_GET(self) -> None:
        if self.path in ("/late", "/never"):
            self.over.wait(3.0 if self.path == "/late" else None)
            self.path = "/index.html"
        if self.path == "/slow":
            self.send_response(200)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.flush()
            self.over.wait(2.0)
            self.wfile.write(b"body")
            return
        super().do_GET()


ASKING = """<h2 id=later></h2><script>
fetch('/slow').then((answer) => answer.text()).then((text) => { later.textContent = text });
</script>"""
NEVER = """<h2 id=later></h2><script>
fetch('/late').then(() => { later.textContent = 'here' }); fetch('/never');
</script>"""


@pytest.mark.slow
@pytest.mark.parametrize(("asking", "shown"), [(ASKING, "body"), (NEVER, "here")])
def test_an_answer_that_comes_late_is_waited_for_and_one_that_never_comes_is_so_once(
    tmp_path: Path, asking: str, shown: str
):
    page = (FOLDER / "notes" / "index.html").read_text()
    (tmp_path / "index.html").write_text(page.replace("</body>", f"{asking}</body>"))
    Late.over.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Late, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        origins = {"elsewhere": f"http://127.0.0.1:{server.server_port}"}
        tasks = (str(FOLDER / "rewarded.toml"),)
        environment = WebAppEnvironment(
            "web", WebAppConfig(kind="webapp", origins=origins, tasks=tasks, browsers=1, pages=1)
        )

        async def work(lease: Callable[[str, int], Any]) -> tuple[str, float]:
            async with lease("page-title", 0) as sandbox:
                said = await sandbox.web.evaluate("later.textContent")
                begun = time.monotonic()
                await sandbox.perform(Wait())
                return said, time.monotonic() - begun

        said, took = with_sandboxes(work, environment)
        Late.over.set()
        server.shutdown()
    assert said == shown and took < 5.0


LEASING = """
import asyncio, sys
from tests.system.pages.test_webapp import NOTES
from environments.pool import SandboxPool
async def main():
    async with SandboxPool([NOTES]) as pool, pool.lease(NOTES.task("notes-add"), 0) as sandbox:
        print(sandbox._place._base, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def test_nothing_is_left_when_the_process_is_killed_outright():
    running = subprocess.Popen([sys.executable, "-c", LEASING], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    base = running.stdout.readline().strip()
    children = psutil.Process(running.pid).children(recursive=True)
    assert children and httpx.get(f"{base}/", headers={"host": "notes.localhost"}, trust_env=False).status_code == 200
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert left((one.pid for one in children), 10) == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{base}/", trust_env=False)
