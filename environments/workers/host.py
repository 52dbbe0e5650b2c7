"""Host one sandbox at a time in a worker process, and replace it when it dies.

A worker is a process in another Python that answers OpenEnv's messages on its own socket. Its output is separate from
its answers, so a package may print. The last lines are reported when the process ends. The process's descendants end
with it (`common.supervisor`).
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from common.process import own_folder, terminate
from common.supervisor import supervised
from environments.host import ProcessHost
from environments.openenv.client import MOST_BYTES, Fields, OpenEnvSession, ServerLost, ServerRefused
from environments.openenv.foreign import ForeignConfig
from environments.openenv.sandbox import OpenEnvSandbox
from schemas.action import Action, Hotkey, Press, Release
from schemas.failure import SandboxFailure
from schemas.keyboard import usual

T = TypeVar("T")
PREFIX = "flywheel-worker-"
END_S = 10.0
"""Time that a process and its descendants have to end before they are killed, in seconds."""
HEAD = struct.Struct(">II")
"""Header of each message: its number, which the answer repeats, and its size in bytes."""
LEAVE_S = 1.0
"""Time that a process has to exit by itself after closing its socket, in seconds, so that its exit status can be
read."""
LAST_LINES = 8
"""Number of kept lines of the output."""


class WorkerSandbox(OpenEnvSandbox):
    """A sandbox for an episode in a worker; keys are sent by their usual names."""

    def _written(self, action: Action) -> dict[str, Any]:
        written = super()._written(action)
        if not self._config.actions and isinstance(action, Hotkey | Press | Release):
            written["key"] = usual(action.key)
        return written


class WorkerHost(ProcessHost["WorkerProcess"]):
    """A process that is restarted when it dies, or when an answer is late.

    Args:
        place: name of the process in messages.
        config: defines how messages are read and written, and the time limit of the start.
        command: Python and script of the process.
        variables: environment variables of the process.
    """

    broken = (ServerLost, ServerRefused)
    sandbox_class: ClassVar[type[WorkerSandbox]] = WorkerSandbox
    """Class of the sandboxes."""

    def __init__(
        self, place: str, config: ForeignConfig, command: tuple[str, ...], variables: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._config, self._started_with = config, (place, command, variables)

    async def _launch(self) -> "WorkerProcess":
        return await WorkerProcess.launch(*self._started_with, self._config.start_timeout_s)

    async def _ask(self, process: "WorkerProcess") -> object:
        return await process.state()

    def sandbox(self) -> OpenEnvSandbox:
        """Makes a sandbox for an episode in the process."""
        process = self._process
        assert process is not None
        return self.sandbox_class(self._config, lambda: process)


class WorkerProcess(OpenEnvSession):
    """A process and its session, which `launch` starts and `end` ends.

    `close` ends an episode and keeps the process for the next one, unless an answer is still awaited; `drop` ends the
    process.
    """

    def __init__(
        self,
        place: str,
        process: asyncio.subprocess.Process,
        folder: str,
        ends: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        super().__init__(place)
        self._process, self._folder = process, folder
        self._reader, self._writer = ends
        self._turn, self._number = asyncio.Lock(), 0
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._listening = asyncio.create_task(self._listen())
        self._ended = False

    @classmethod
    async def launch(
        cls, place: str, command: tuple[str, ...], variables: Mapping[str, str], limit_s: float
    ) -> "WorkerProcess":
        """Starts a worker and waits for its first answer; a cancelled start leaves no process behind.

        Args:
            place: name of the process in messages.
            command: Python and script of the process; the socket's number is added.
            variables: environment variables of the process.
            limit_s: time limit of the first answer, in seconds.

        Raises:
            SandboxFailure: the process ended, or did not answer in time; the message has the last line of its output.
        """
        folder = own_folder(PREFIX)
        ours, theirs = socket.socketpair()
        spawning = asyncio.ensure_future(_spawn(command, folder, theirs, {**variables, "TMPDIR": folder}))
        process: WorkerProcess | None = None
        try:
            spawned = await asyncio.shield(spawning)
            ours.setblocking(False)
            process = cls(place, spawned, folder, await asyncio.open_connection(sock=ours))
            async with asyncio.timeout(limit_s):
                await process.state()
        except BaseException as error:
            await asyncio.wait((spawning,))  # a process cannot be ended during its start
            if process is not None:
                await process.end()
            else:
                ours.close()
                if spawning.exception() is None:
                    await _end(spawning.result())
                shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, TimeoutError):
                raise SandboxFailure(f"{place} did not begin within {limit_s:g} s") from error
            if isinstance(error, ServerLost | OSError):
                raise SandboxFailure(str(error)) from error
            raise
        return process

    @property
    def alive(self) -> bool:
        """Whether the process runs and accepts requests."""
        return not self._ended and self._process.returncode is None

    @property
    def pid(self) -> int:
        """Id of the supervising process; the worker's processes are its descendants."""
        return self._process.pid

    async def open(self) -> None:
        """Does nothing, since the process runs."""

    async def close(self) -> None:
        """Ends the episode, or the process if it is busy."""
        if self._waits_for:
            self.drop()
        elif self.alive:
            with contextlib.suppress(OSError):
                self._writer.write(_framed(0, '{"type":"close"}'))

    def drop(self) -> None:
        """Ends the process and its descendants at once."""
        self._ended = True
        terminate(self._process)

    async def end(self) -> None:
        """Ends the process, and waits until none of its descendants is left."""
        self.drop()
        self._writer.close()
        try:
            await _end(self._process)
        finally:
            self._listening.cancel()
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _call(self, kind: str, wanted: str, data: Fields | None, read: Callable[[str, dict[str, Any]], T]) -> T:
        async with self._turn:  # a health check may be using it
            return await super()._call(kind, wanted, data, read)

    async def _exchange(self, kind: str, message: str) -> tuple[bytes, bool]:
        try:
            self._number = (self._number + 1) % (1 << 32)
            self._writer.write(_framed(self._number, message))
            await self._writer.drain()
            number, size = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            if number != self._number or size > MOST_BYTES:
                self.drop()
                raise ServerLost(f"{self.place} sent no valid answer to {kind}")
            return await self._reader.readexactly(size), True
        except (OSError, asyncio.IncompleteReadError) as error:
            raise ServerLost(f"{self.place} ended at {kind}{await self._last_words()}") from error

    async def _listen(self) -> None:
        """Reads the process's output, so that it never blocks, and keeps the last lines."""
        stream = self._process.stdout
        assert stream is not None
        rest = b""
        while part := await stream.read(1 << 16):
            *lines, rest = (rest[-4096:] + part).split(b"\n")
            texts = (line[:400].decode(errors="replace").strip() for line in lines[-LAST_LINES:])
            self._last_lines.extend(text for text in texts if text)

    async def _last_words(self) -> str:
        """Describes the exit status, if the process exited by itself, and its last output; afterwards, all of its
        processes have ended."""
        self._ended = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), LEAVE_S)
        code = self._process.returncode
        self.drop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._listening), END_S)
        how = "" if code is None else f" by signal {-code}" if code < 0 else f" with exit status {code}"
        return f"{how}: {self._last_lines[-1] if self._last_lines else 'it printed nothing'}"


def _framed(number: int, message: str) -> bytes:
    content = message.encode()
    return HEAD.pack(number, len(content)) + content


async def _spawn(
    command: tuple[str, ...], folder: str, channel: socket.socket, variables: Mapping[str, str]
) -> asyncio.subprocess.Process:
    kept = supervised(folder=folder)
    with channel:
        return await asyncio.create_subprocess_exec(
            *kept, *command, str(channel.fileno()), pass_fds=(channel.fileno(),), start_new_session=True, cwd=folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(variables),
        )  # fmt: skip


async def _end(process: asyncio.subprocess.Process) -> None:
    terminate(process)
    try:
        await asyncio.wait_for(process.wait(), END_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
