"""Start, query and end a desktop from outside; `environments.desktop.box` runs in the desktop."""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from common.process import own_folder, terminate
from common.supervisor import supervised
from environments.bubblewrap import end, sweep
from environments.desktop import isolation
from schemas.failure import SandboxFailure

Isolation = Literal["namespaces", "none"]
PREFIX = "flywheel-desktop-"
MOST_BYTES = 64 << 20
"""Maximum bytes of one line of an answer."""
HOME_MB = 64
END_S = 2.0
"""Time that a desktop has to end by itself, in seconds."""
_MODULE = "environments.desktop.box"


class AskFailed(Exception):
    """Raised if the desktop could not fulfil a request; the desktop continues."""


class RunningDesktop:
    """A running desktop, which `start` starts and `end` ends."""

    def __init__(self, process: asyncio.subprocess.Process, folder: str | None) -> None:
        self._process, self._folder = process, folder
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._drain: asyncio.Task[bytes] | None = None

    @classmethod
    async def start(
        cls,
        width: int,
        height: int,
        kind: Isolation,
        settings: Mapping[str, bytes],
        folders: Mapping[str, int] | None = None,
    ) -> "RunningDesktop":
        """Starts a desktop with an X server and a window manager, and only settings in its home.

        Args:
            width, height: size of the screen, in pixels.
            kind: isolation of the desktop.
            settings: files of its home.
            folders: further writable folders of a desktop in namespaces, each with its size in MB.

        Raises:
            SandboxFailure: the desktop does not start; the message has its output.
            FlywheelError: bubblewrap is missing.
        """
        sweep()
        folder = None if kind == "namespaces" else own_folder(PREFIX)
        spawning = asyncio.ensure_future(_spawn(width, height, folder, folders or {}))
        try:
            box = cls(await asyncio.shield(spawning), folder)
            await box._begin(settings)
        except BaseException:
            await asyncio.wait((spawning,))  # a process cannot be ended during its start
            if spawning.exception() is None:
                await cls(spawning.result(), folder).end()
            elif folder:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return box

    async def _begin(self, settings: Mapping[str, bytes]) -> None:
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None and stdout is not None and stderr is not None
        with contextlib.suppress(ConnectionError):
            stdin.write(json.dumps(_listed(settings)).encode() + b"\n")
        first = await stdout.readline()
        if first.startswith(b"{"):
            error = json.loads(first).get("error")
        else:
            error = (await stderr.read())[-400:].decode(errors="replace").strip() or "no output"
        if error is not None:
            raise SandboxFailure(f"the desktop does not start: {error}")
        self._reader = asyncio.create_task(self._read())
        self._drain = asyncio.create_task(stderr.read())  # so that it never blocks on its error output

    @property
    def home(self) -> str:
        """Path of the home within the desktop."""
        return isolation.HOME if self._folder is None else f"{self._folder}/home"

    @property
    def pid(self) -> int:
        """Id of the desktop's outermost process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the desktop accepts requests."""
        return self._process.returncode is None and self._reader is not None and not self._reader.done()

    async def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """Sends a request to `environments.desktop.box` and returns the answer's JSON fields.

        Raises:
            AskFailed: the desktop could not fulfil the request.
            SandboxFailure: the desktop has ended.
        """
        return (await self.content(what, **fields))[0]

    async def set_out(self, files: Mapping[str, bytes]) -> None:
        """Writes files below the home; a name that ends with a slash is a folder."""
        await self.ask("set_out", files=_listed(files))

    async def content(self, what: str, **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Sends a request and returns the answer's fields and the bytes that follow; raises as `ask` does."""
        if not self.alive:
            raise SandboxFailure("the desktop is gone")
        assert self._process.stdin is not None
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            with contextlib.suppress(ConnectionError):
                self._process.stdin.write(json.dumps({"id": number, "ask": what, **fields}).encode() + b"\n")
                await self._process.stdin.drain()
            output, content = await answer
        finally:
            self._waiting.pop(number, None)
        if "error" in output:
            raise AskFailed(str(output["error"]))
        return output, content

    async def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        try:
            while line := await stream.readline():
                output = json.loads(line)
                content = await stream.readexactly(output["bytes"])
                if (waiting := self._waiting.get(output["id"])) is not None and not waiting.done():
                    waiting.set_result((output, content))
        except (asyncio.IncompleteReadError, ValueError, KeyError, TypeError):
            self.kill()  # the rest of its output cannot be parsed
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(SandboxFailure("the desktop died"))

    def kill(self) -> None:
        """Kills the desktop at once; each pending request fails."""
        if self._folder is None:
            end(self._process.pid)
        else:
            terminate(self._process)

    async def end(self) -> None:
        """Ends the desktop and waits until no process is left; kills it if it does not end at the end of its input."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), END_S)
            self.kill()
            await self._process.wait()
        finally:
            for task in (self._reader, self._drain):
                if task is not None:
                    task.cancel()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)


def _listed(files: Mapping[str, bytes]) -> list[dict[str, str]]:
    return [{"path": path, "content": base64.b64encode(content).decode()} for path, content in files.items()]


async def _spawn(width: int, height: int, folder: str | None, folders: Mapping[str, int]) -> asyncio.subprocess.Process:
    files = isolation.memory_files() if folder is None else {}
    home, temporary = (isolation.HOME, "/tmp") if folder is None else (f"{folder}/home", f"{folder}/tmp")
    if folder is None:
        before = isolation.walls(HOME_MB, files, folders)
    else:
        Path(home).mkdir()
        Path(temporary).mkdir()
        before = supervised(END_S, folder=folder)
    inner = [sys.executable, "-P", "-m", _MODULE, str(width), str(height), home]
    try:
        return await asyncio.create_subprocess_exec(
            *before, *inner, pass_fds=tuple(files.values()), start_new_session=True, limit=MOST_BYTES,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=isolation.environment(home, temporary), cwd=None if folder is None else home,
        )  # fmt: skip
    finally:
        for descriptor in files.values():
            os.close(descriptor)
