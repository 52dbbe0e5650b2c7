"""Run a headless Chromium that draws only when asked, driven over a pipe.

Chrome DevTools Protocol messages go over `--remote-debugging-pipe`: NUL-separated JSON on two descriptors. A pipe needs
no port, no handshake and no web socket library. It closes when the browser ends, so every pending call fails at once
instead of waiting for a timeout. One pipe carries many flat sessions.

Frames on demand (`--enable-begin-frame-control`) make a screenshot cost about 2 ms instead of two periods of the
display's clock; only the headless shell has them. The browser has no network, no telemetry and a temporary profile. The
process and the profile are removed when this process ends, even if it is killed (`common.supervisor`).

A browser draws one frame at a time: a second concurrent request ends the whole browser, so a lock prevents this.
"""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.process import own_folder, terminate
from common.supervisor import supervised
from environments.programs import asked
from schemas.failure import FlywheelError, SandboxFailure

if TYPE_CHECKING:
    from environments.chromium.page import Page


Reply = dict[str, Any]


class Connection(asyncio.Protocol):
    """One browser's pipe."""

    def __init__(self) -> None:
        self._replies: dict[int, tuple[str, asyncio.Future[Reply]]] = {}
        self._lost: dict[str, str] = {}
        self._buffer = bytearray()
        self._unsent = bytearray()
        self._number = 0
        self._reader: asyncio.ReadTransport | None = None
        self._writer: asyncio.WriteTransport | None = None
        self._why = "the browser has died"
        self.gone = False
        """Whether the browser's end of the pipe is closed."""

    async def open(self, read_fd: int, write_fd: int) -> None:
        """Takes over both descriptors; they are closed with the connection."""
        loop = asyncio.get_running_loop()
        self._reader, _ = await loop.connect_read_pipe(lambda: self, os.fdopen(read_fd, "rb", 0))
        self._writer, _ = await loop.connect_write_pipe(lambda: self, os.fdopen(write_fd, "wb", 0))

    def close(self, why: str = "the browser is closed") -> None:
        """Closes both ends; pending and later requests fail with the reason `why`."""
        for transport in (self._reader, self._writer):
            if transport is not None:
                transport.close()
        self._lose(why)

    def send(self, method: str, params: Reply | None = None, session: str = "") -> "asyncio.Future[Reply]":
        """Sends a command and returns the future of its result, so that commands can be sent without waiting.

        The future raises SandboxFailure if the browser or the session ends, or if the command is refused.
        """
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        lost = self._why if self.gone else self._lost.get(session)
        if lost is not None or self._writer is None:
            _fail(reply, f"{method}: {lost or 'not connected'}")
            return reply
        self._number += 1
        message: Reply = {"id": self._number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        self._replies[self._number] = (session, reply)
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent += json.dumps(message).encode() + b"\0"
        return reply

    def _flush(self) -> None:
        """Writes all queued commands at once, since each write wakes the browser's reader."""
        unsent, self._unsent = bytes(self._unsent), bytearray()
        if self._writer is not None:
            self._writer.write(unsent)

    def data_received(self, data: bytes) -> None:
        """Splits the stream into messages."""
        self._buffer += data
        if b"\0" not in data:
            return
        *messages, rest = self._buffer.split(b"\0")
        self._buffer = bytearray(rest)
        for message in messages:
            self._take(json.loads(message))

    def connection_lost(self, exc: Exception | None) -> None:
        """Handles that the browser closed one of its ends."""
        self._lose(self._why)

    def _take(self, message: Reply) -> None:
        if "id" in message:
            if message["id"] in self._replies:
                _settle(self._replies.pop(message["id"])[1], message)
            return
        method, session = message["method"], message.get("sessionId", "")
        if method == "Target.detachedFromTarget":
            self._lose_session(message["params"]["sessionId"], "the page is closed")
        elif method == "Inspector.targetCrashed":
            self._lose_session(session, "the page has crashed")

    def _lose_session(self, session: str, why: str) -> None:
        self._lost[session] = why
        for number in [number for number, (owner, _) in self._replies.items() if owner == session]:
            _fail(self._replies.pop(number)[1], why)

    def _lose(self, why: str) -> None:
        self.gone, self._why = True, why
        for number in list(self._replies):
            _fail(self._replies.pop(number)[1], why)


def _settle(reply: "asyncio.Future[Reply]", message: Reply) -> None:
    if "error" in message:
        _fail(reply, f"the browser refused: {message['error'].get('message', '')}")
    elif not reply.done():
        reply.set_result(message["result"])


def _fail(future: "asyncio.Future[Reply]", why: str) -> None:
    if not future.done():
        future.set_exception(SandboxFailure(why))
        future.exception()  # marks the exception as retrieved, since its waiter may have gone


VARIABLE = "FLYWHEEL_BROWSER"
PROFILE = "flywheel-browser-"
LAUNCH_TIMEOUT_S = 60.0
VERSION_TIMEOUT_S = 30.0
NO_HOSTS: Mapping[str, str] = {}
FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--enable-begin-frame-control",
    "--run-all-compositor-stages-before-draw",
    "--deterministic-mode",
    "--no-sandbox",
    "--disable-gpu",
    "--in-process-gpu",
    "--disable-dev-shm-usage",
    "--disable-checker-imaging",
    "--disable-partial-raster",
    "--disable-lcd-text",
    "--disable-smooth-scrolling",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-field-trial-config",
    "--disable-sync",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--metrics-recording-only",
    "--mute-audio",
    "--hide-scrollbars",
    "--password-store=basic",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "--force-device-scale-factor=1",
    "--allow-file-access-from-files",
    "--no-proxy-server",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-features=BackForwardCache,OptimizationHints,MediaRouter,Translate,PaintHolding,RenderDocument,SpareRendererForSitePerProcess",
)


def resolver_rules(reachable: Mapping[str, str]) -> str:
    """Builds the rules that let a browser reach only the named hosts, each at one port.

    Args:
        reachable: the `address:port` of each host, by `name:port` as a page writes it.
    """
    return ",".join([*(f"MAP {name} {address}" for name, address in reachable.items()), "MAP * ~NOTFOUND"])


def find_browser(path: str | None = None, key: str = "environments.miniwob.browser") -> Path:
    """Finds the headless shell: `path`, else `FLYWHEEL_BROWSER`, else an installed browser, else Playwright's.

    Args:
        path: path of the program, if known.
        key: the config key of that path, for the error.

    Raises:
        FlywheelError: there is no browser, or `path` is no program; the hint explains how to install a browser.
    """
    asked = path or os.environ.get(VARIABLE)
    if asked:
        if os.access(asked, os.X_OK) and Path(asked).is_file():
            return Path(asked)
        raise FlywheelError(f"`{key if path else VARIABLE}`: {asked} is not a program.", _INSTALL)
    for candidate in _candidates():
        if os.access(candidate, os.X_OK):
            return candidate
    raise FlywheelError(f"No headless Chromium was found (`{key}`).", _INSTALL)


_INSTALL = (
    "Install one: `apt install chromium-headless-shell` (Debian), or `pip install playwright && playwright install "
    f"--only-shell chromium`; or name its path in that key or in {VARIABLE}."
)


def browser_version(path: Path) -> str:
    """Returns the browser's version string, for example `Chromium 156.0.8078.79`; raises FlywheelError if it does not
    run."""
    try:
        return asked((str(path), "--version"), VERSION_TIMEOUT_S).strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise FlywheelError(f"{path} does not run: {error}.", _INSTALL) from error


def _candidates() -> Iterator[Path]:
    yield Path("/usr/lib/chromium/chromium-headless-shell")
    for name in ("chrome-headless-shell", "headless_shell"):
        if found := shutil.which(name):
            yield Path(found)
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    for name in ("chrome-headless-shell", "headless_shell"):
        yield from sorted(cache.glob(f"chromium_headless_shell-*/*/{name}"), reverse=True)


class Browser:
    """A running browser, which `launch` starts and `end` ends."""

    def __init__(self, process: asyncio.subprocess.Process, connection: Connection, profile: str) -> None:
        self._process = process
        self._profile = profile
        self.connection = connection
        self.frames = asyncio.Lock()
        """Lock that is held while a frame is drawn, since the whole browser draws one frame at a time."""
        self.idle: list[Page] = []
        """Pages without a trajectory."""

    @classmethod
    async def launch(cls, path: Path, reachable: Mapping[str, str] = NO_HOSTS) -> "Browser":
        """Starts a browser; a cancelled start leaves no process behind.

        Args:
            path: the program.
            reachable: the hosts that its pages can reach (`resolver_rules`); none by default.

        Raises:
            SandboxFailure: the browser did not start within a minute.
        """
        profile = own_folder(PROFILE)
        connection = Connection()
        spawning = asyncio.ensure_future(_spawn(path, profile, connection, resolver_rules(reachable)))
        try:
            browser = cls(await asyncio.shield(spawning), connection, profile)
            async with asyncio.timeout(LAUNCH_TIMEOUT_S):
                await connection.send("Browser.getVersion")
        except BaseException as error:
            await asyncio.wait((spawning,))  # a process cannot be ended during its start
            if spawning.exception() is None:
                await cls(spawning.result(), connection, profile).end()
            shutil.rmtree(profile, ignore_errors=True)
            if isinstance(error, TimeoutError | SandboxFailure):
                raise SandboxFailure(f"{path} did not start: {error}") from error
            raise
        return browser

    @property
    def alive(self) -> bool:
        """Whether the browser can be used."""
        return not self.connection.gone and self._process.returncode is None

    @property
    def pid(self) -> int:
        """Id of the supervising process; the browser's processes are its descendants."""
        return self._process.pid

    def kill(self, why: str = "the browser is closed") -> None:
        """Kills the browser at once; each pending request fails with the reason `why`."""
        self.connection.close(why)
        terminate(self._process)

    async def end(self) -> None:
        """Ends the browser, waits for its end, and deletes its profile."""
        self.kill()
        try:
            await self._process.wait()
        finally:
            shutil.rmtree(self._profile, ignore_errors=True)


async def _spawn(path: Path, profile: str, connection: Connection, rules: str) -> asyncio.subprocess.Process:
    to_read, for_writing = os.pipe()
    for_reading, to_write = os.pipe()
    prefix = supervised(0.0, str(to_read), str(to_write), profile)
    try:
        process = await asyncio.create_subprocess_exec(
            *prefix, str(path), *FLAGS, f"--host-resolver-rules={rules}", f"--user-data-dir={profile}", "about:blank",
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(to_read, to_write), start_new_session=True, env={**os.environ, "TMPDIR": profile},
        )  # fmt: skip
    finally:
        os.close(to_read)
        os.close(to_write)
    await connection.open(for_reading, for_writing)
    return process
