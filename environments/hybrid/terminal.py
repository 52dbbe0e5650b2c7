"""Run commands in a sandbox's terminal: a bash that keeps its folder and variables between commands.

Each command is sent as one line that ends by printing a mark. The mark contains a random word, which no process gets;
the output before the mark is the command's. A command has no keyboard (its input is empty), a time limit and an output
limit. If it exceeds a limit, it is interrupted as by ctrl-c. If this fails, it is killed together with the shell, and
the shell is started again with the same files. If even this fails, the sandbox and the trajectory end.

The shell belongs to the policy, so a command that inspects the shell may find the word of its mark and print it first.
This only fakes the status, folder or end of its own command. No reward reads these, a mark is short and alphanumeric
whichever process prints it, and new shells are counted.

A supervisor enforces the limits of all processes of a sandbox together, since the kernel only limits each process.

The supervisor runs in its own thread, since a policy's computation may block the event loop while a sandbox exceeds its
limits.
"""

import asyncio
import contextlib
import os
import re
import secrets
import shlex
import signal
import threading
from dataclasses import dataclass
from typing import final

from common.text import harmless
from environments.hybrid.bubblewrap import EVERYTHING, START_S, WORK, Bubblewrap, Mounts, SandboxLimits, ready
from schemas.failure import ActionFailure, SandboxFailure, TrajectoryFailure

CHECK_S = 0.1


def breach(bubblewrap: Bubblewrap) -> str:
    """Describes a limit that the sandbox's processes exceed together; empty if there is none."""
    used, limits = bubblewrap.usage(), bubblewrap.limits
    if used.memory > limits.memory_mib << 20:
        return f"its processes held {used.memory >> 20} MiB, and {limits.memory_mib} are allowed"
    if used.cpu_s > limits.cpu_s:
        return f"its processes computed for {used.cpu_s:.0f} s, and {limits.cpu_s} are allowed"
    if used.files > limits.files:
        return f"it held {used.files} files, and {limits.files} are allowed"
    return ""


@final
class Supervisor:
    """Supervises all sandboxes of this process; the thread ends with the last sandbox."""

    def __init__(self) -> None:
        self._sandboxes: set[Bubblewrap] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, bubblewrap: Bubblewrap) -> None:
        """Watches a sandbox until `leave`."""
        with self._changed:
            self._sandboxes.add(bubblewrap)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="jails", daemon=True)
                self._thread.start()

    def leave(self, bubblewrap: Bubblewrap) -> None:
        """Removes a sandbox before it is closed; afterwards, it is not read any more."""
        with self._changed:
            self._sandboxes.discard(bubblewrap)
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while self._sandboxes:
                for bubblewrap in self._sandboxes:
                    if bubblewrap.alive and (reason := breach(bubblewrap)):
                        bubblewrap.end(reason)
                self._changed.wait(CHECK_S)
            self._thread = None


SUPERVISOR = Supervisor()


LONGEST = 32_768
"""Maximum characters of a command."""
MOST_OUTPUT = 65_536
"""Maximum bytes of a command's output; a command that writes more is stopped."""
GRACE_S = 1.0
"""Seconds for an interrupted command to end, and for a killed shell to start again."""
QUIET_S = 0.05
"""Required seconds without output after a stopped command; otherwise, all processes of the shell are killed."""
KILLS = 5
"""Number of attempts to kill all processes before the sandbox is ended."""
RESTARTS = 20
"""Number of consecutive shells that accept no line before the sandbox is ended."""
_SCRIPT = r"""
IFS= read -r word
exec 9>&1
while :; do
  printf '\036%s 0 /\037' "$word" >&9
  PS1= PS2= /bin/bash --norc --noprofile --noediting +H +o history -i
done
"""
_MARK = re.compile(rb"\x1e([0-9a-f]{16}) (\d{1,3}) ([^\x1e\x1f]{0,4000})\x1f")
"""A mark: its word, the status, the folder."""
_LONGEST_MARK = 8192


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a command."""

    output: str
    status: int | None
    """Exit status; None if the command was stopped."""
    note: str = ""
    """Reason why the command was stopped."""


class _Gone(Exception):
    """Raised if the sandbox's end of the pipe is closed."""


class _TooMuch(Exception):
    """Raised if a command exceeds the output limit."""


class TerminalSession:
    """A shell's session, which `open` starts and `close` ends."""

    def __init__(self, bubblewrap: Bubblewrap, command_s: float) -> None:
        self.bubblewrap = bubblewrap
        self.folder = WORK
        """Current folder of the shell."""
        self.command_s = command_s
        """Maximum seconds of a command."""
        self._restarted = _word()
        """The word of the mark before a new shell."""
        self._unread, self._output = b"", bytearray()

    @classmethod
    async def open(cls, limits: SandboxLimits, command_s: float, mounts: Mounts = EVERYTHING) -> "TerminalSession":
        """Starts a shell in its own sandbox, with a limit of `command_s` seconds per command.

        Raises:
            FlywheelError: bubblewrap is not installed.
            SandboxFailure: the sandbox did not start.
        """
        terminal = cls(await Bubblewrap.start(limits, _SCRIPT, mounts=mounts), command_s)
        try:
            async with asyncio.timeout(START_S):
                await terminal._write(f"{terminal._restarted}\n".encode())
                await terminal._read_to(terminal._restarted)
                terminal.bubblewrap.enter()
                SUPERVISOR.watch(terminal.bubblewrap)
                await terminal._sync()
        except (_Gone, _TooMuch, TimeoutError, OSError) as error:
            answer = terminal._text() or "it does not answer"
            await terminal.close()
            raise SandboxFailure(f"no shell starts: {answer}") from error
        except BaseException:
            await terminal.close()
            raise
        return terminal

    async def run(self, command: str) -> Ran:
        """Runs a command until it ends, or reaches its time or output limit.

        Raises:
            ActionFailure: the command ended the sandbox, or could not be ended.
            SandboxFailure: the sandbox was ended from outside.
        """
        if len(command) > LONGEST or "\0" in command:
            return Ran("", None, f"a command has at most {LONGEST:,} characters and no zero byte")
        if not self.bubblewrap.alive:
            raise await self._death()
        note = ""
        try:
            async with asyncio.timeout(self.command_s):
                status = await self._asked(f"eval {shlex.quote(command)} </dev/null 9>&-; ")
        except TimeoutError:
            note = f"stopped after {self.command_s:g} s"
        except _TooMuch:
            note = f"stopped after {MOST_OUTPUT >> 10} KiB of output"
        except _Gone:
            raise await self._death() from None
        else:
            return Ran(self._text(), status, "" if status is not None else "the shell ended; this is a new one")
        output = self._text()
        return Ran(output, None, note + ("" if await self._stopped() else "; the shell is a new one"))

    async def close(self) -> None:
        """Ends the sandbox and all of its processes."""
        SUPERVISOR.leave(self.bubblewrap)
        await self.bubblewrap.close()

    async def _asked(self, line: str) -> int | None:
        """Sends a line and reads up to its mark; returns the status, or None if the shell had to be restarted."""
        found = await self._marked(line)
        if found is not None:
            self.folder = harmless(found[3].decode(errors="replace")) or WORK
            return int(found[2])
        output = self._output
        await self._sync()
        self._output, self.folder = output, WORK
        return None

    async def _sync(self) -> None:
        """Discards the output of a shell at its start or after an interrupt."""
        for _ in range(RESTARTS):
            if await self._marked("", discard=True) is not None:
                return
        self.bubblewrap.end("its shell ended again and again")
        raise _Gone

    async def _marked(self, line: str, discard: bool = False) -> re.Match[bytes] | None:
        """Reads the mark of a line; None if the shell was restarted instead."""
        word = _word()
        folder = "${PWD//[[:cntrl:]]/?}"
        mark = f"builtin printf '\\036%s %d %.1000s\\037' {word} $? \"{folder}\" >&9\n"
        await self._write((line + mark).encode(errors="replace"))
        return await self._read_to(word, discard)

    async def _stopped(self) -> bool:
        """Ends the running command: by ctrl-c (True), or else with the shell (False)."""
        try:
            self.bubblewrap.signal(signal.SIGINT)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await self._sync()
                    if not await self._floods():
                        return True
            for _ in range(KILLS):
                self.bubblewrap.signal(signal.SIGKILL)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(GRACE_S):
                        await self._sync()
                        return False
        except (_Gone, _TooMuch):
            pass
        self.bubblewrap.end("its command could not be stopped")
        raise await self._death()

    async def _floods(self) -> bool:
        """Whether a background process keeps writing although no command runs."""
        await asyncio.sleep(QUIET_S)
        try:
            return bool(self._unread or os.read(self.bubblewrap.stdout, MOST_OUTPUT))
        except BlockingIOError:
            return False

    async def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self.bubblewrap.stdin, data) :]
            except BlockingIOError:
                await ready(self.bubblewrap.stdin, to_write=True)
            except BrokenPipeError:
                raise _Gone from None

    async def _read_to(self, word: str, discard: bool = False) -> re.Match[bytes] | None:
        """Reads output up to the mark with this word; None if the shell was restarted instead. Marks of interrupted
        lines are dropped from the output."""
        self._output = bytearray()
        while True:
            while found := _MARK.search(self._unread):
                self._output += self._unread[: found.start()]
                self._unread = self._unread[found.end() :]
                if found[1].decode() in (word, self._restarted):
                    return found if found[1].decode() == word else None
            cut = self._unread.rfind(b"\x1e")
            cut = cut if cut >= 0 and len(self._unread) - cut < _LONGEST_MARK else len(self._unread)
            self._output += self._unread[:cut]
            self._unread = self._unread[cut:]
            if discard:
                self._output.clear()
            if len(self._output) > MOST_OUTPUT:
                raise _TooMuch
            try:
                part = os.read(self.bubblewrap.stdout, MOST_OUTPUT)
            except BlockingIOError:
                await ready(self.bubblewrap.stdout)
                continue
            if not part:
                raise _Gone
            self._unread += part
            await asyncio.sleep(0)  # a process that writes without end must not block the timeout

    def _text(self) -> str:
        text = self._output[:MOST_OUTPUT].decode(errors="replace").replace("\r\n", "\n")
        self._output = bytearray()
        return harmless(text)

    async def _death(self) -> TrajectoryFailure:
        """Makes the failure for a sandbox that has ended; it is the policy's, unless the sandbox was killed from
        outside."""
        await self.bubblewrap.gone()
        if self.bubblewrap.killed:
            return SandboxFailure("the shell's bubblewrap was killed")
        return ActionFailure(f"the shell was ended: {self.bubblewrap.ended or 'a command ended all that ran in it'}")


def _word() -> str:
    return secrets.token_hex(8)
