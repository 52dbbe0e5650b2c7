"""Isolate processes in a bubblewrap sandbox: their own root, process table, network and disks.

The sandbox sees the system's programs (`/usr`, read-only) and a few empty folders, and no other file of the machine. It
can write to three small file systems in memory (`/work`, `/tmp`, `/dev/shm`), which end with it. It has no network but
its own loopback, no capabilities and no way to new ones, no further user namespaces, and few system calls (`seccomp`).
If we are root, its processes run as `nobody`, so they never have more rights than an ordinary user. The kernel limits
each process; `supervisor` limits all of them together. No process outlives it: its first process ends with bubblewrap,
which ends with this process even if we are killed outright (`--die-with-parent`).

The host reads and writes its files through a descriptor of `/work` (`files`), never by a path that leads through it.
"""

import asyncio
import contextlib
import json
import os
import pwd
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from environments.bubblewrap import bubblewrap, end, owned, programs, sweep
from environments.seccomp import program
from schemas.failure import SandboxFailure

INSTALL = "Install bubblewrap (`apt install bubblewrap`), and allow user namespaces; without them no shell is started."
START_S = 15.0
WORK = "/work"
DISKS = (WORK, "/tmp", "/dev/shm")
HIDDEN = Path(__file__).parents[1]
"""Folder of our own code, which the sandbox does not see, wherever it is installed."""
_USER, _GROUP = 1000, 1000
_PASSWD = f"user:x:{_USER}:{_GROUP}:user:{WORK}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"
_CHILDREN = "/proc/{0}/task/{0}/children"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one sandbox."""

    memory_mib: int = 256
    """Memory of all its processes together; each may have twice that of address space."""
    disk_mib: int = 32
    """Size of `/work`; `/tmp` and `/dev/shm` have a quarter of it each."""
    files: int = 4000
    """Files and folders on the three together."""
    processes: int = 32
    cpu_s: int = 60
    """Processor time of all of its processes together, and of each one."""
    open_files: int = 64


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that the sandbox's processes use together."""

    processes: int
    memory: int
    """Bytes of resident memory; a page that two share counts twice."""
    cpu_s: float
    files: int


def owner() -> tuple[int, int] | None:
    """User and group of the sandbox's processes on the host, if they are not ours: `nobody` if we are root, else
    None."""
    if os.geteuid() != 0:
        return None
    user = pwd.getpwnam("nobody")
    return user.pw_uid, user.pw_gid


class Bubblewrap:
    """One running sandbox. Made by `start`, ended by `close`."""

    def __init__(self, process: asyncio.subprocess.Process, limits: SandboxLimits, stdin: int, stdout: int) -> None:
        self._process = process
        self._init = 0
        self.limits = limits
        self.stdin, self.stdout = stdin, stdout
        """Standard input and output of the script; `stdout` carries its errors, too. Neither blocks."""
        for descriptor in (stdin, stdout):
            os.set_blocking(descriptor, False)
        self.ended = ""
        """The reason that it was ended early, if it was."""
        self.disks: tuple[int, ...] = ()
        """Descriptors of `DISKS`."""
        self._own_cpu: dict[tuple[int, str], float] = {}
        """Processor seconds of each process (its number, its start time) when it was last measured."""
        self._gone_cpu = 0.0
        """Processor seconds of ended processes."""

    @classmethod
    async def start(cls, limits: SandboxLimits, script: str, *arguments: str) -> "Bubblewrap":
        """Starts a sandbox in which bash runs a script.

        Raises:
            FlywheelError: bubblewrap is not installed.
            SandboxFailure: it did not start; with its output.
        """
        bwrap = bubblewrap(INSTALL)
        sweep()
        (inside_in, stdin), (stdout, inside_out), (message, info) = (os.pipe() for _ in range(3))
        passed = (info, _piped(program()), _piped(_PASSWD.encode()))
        command = [bwrap, *owned(), *_arguments(limits, *passed), "/bin/bash", "-c", _limited(limits) + script, "shell"]
        user = owner()
        dropped = {} if user is None else {"user": user[0], "group": user[1], "extra_groups": []}
        spawning = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *command, *arguments, stdin=inside_in, stdout=inside_out, stderr=subprocess.STDOUT,
                pass_fds=passed, start_new_session=True, cwd="/", env={}, **dropped,
            )
        )  # fmt: skip
        cancelled: asyncio.CancelledError | None = None
        try:
            await asyncio.shield(asyncio.wait((spawning,)))
        except asyncio.CancelledError as error:
            cancelled = error
            await asyncio.wait((spawning,))  # a process that is still being started cannot be ended
        for descriptor in (inside_in, inside_out, *passed):
            os.close(descriptor)
        if (error := spawning.exception()) is not None:
            for descriptor in (stdin, stdout, message):
                os.close(descriptor)
            raise SandboxFailure(f"no shell can be isolated: {error}")
        sandbox = cls(spawning.result(), limits, stdin, stdout)
        try:
            if cancelled is not None:
                raise cancelled
            sandbox._init = await _child(message)
        except (TimeoutError, OSError, EOFError, ValueError, KeyError) as problem:
            answer = (_left(stdout) or b"").decode(errors="replace").strip()
            await sandbox.close()
            raise SandboxFailure(f"no shell can be isolated: {answer or 'bubblewrap does not answer'}") from problem
        except BaseException:
            await sandbox.close()
            raise
        finally:
            os.close(message)
        return sandbox

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.returncode is None and not self.ended

    @property
    def killed(self) -> bool:
        """Whether bubblewrap itself was killed from outside; no process in the sandbox can do that."""
        return self._process.returncode == -signal.SIGKILL and not self.ended

    @property
    def pid(self) -> int:
        """Process id of bubblewrap on the host."""
        return self._process.pid

    def enter(self) -> None:
        """Opens its disks; call it once the script runs, before any process of a policy does."""
        root = f"/proc/{self.pids()[1]}/root"
        self.disks = tuple(os.open(f"{root}{disk}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for disk in DISKS)

    def pids(self) -> list[int]:
        """Its process ids on the host: the first one (bubblewrap's), the script's shell, all others."""
        found, waiting = [], [self._init]
        while waiting:
            pid = waiting.pop(0)
            found.append(pid)
            with contextlib.suppress(OSError, ValueError):
                waiting += map(int, Path(_CHILDREN.format(pid)).read_text().split())
        return found

    def signal(self, number: int) -> None:
        """Sends a signal to all its processes but the first two."""
        for pid in self.pids()[2:]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def usage(self) -> Usage:
        """Measures the current usage. Call it repeatedly, since the processor time of a process can disappear with it.

        A parent that waits for a process inherits its time. A parent that ignores the exit does not, so the last
        measured time of each process is also kept, and the larger of the two sums counts.
        """
        pids = self.pids()
        memory, handed_on, own = 0, 0.0, dict[tuple[int, str], float]()
        for pid in pids:
            with contextlib.suppress(OSError, ValueError, IndexError):
                memory += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                own[pid, fields[19]] = sum(map(int, fields[11:13])) / _TICKS
                handed_on += sum(map(int, fields[11:15])) / _TICKS
        for one in self._own_cpu.keys() - own.keys():
            if not Path(f"/proc/{one[0]}").exists():
                self._gone_cpu += self._own_cpu.pop(one)
        self._own_cpu |= own
        cpu = max(handed_on, self._gone_cpu + sum(self._own_cpu.values()))
        files = 0
        for disk in self.disks:
            with contextlib.suppress(OSError):
                found = os.fstatvfs(disk)
                files += found.f_files - found.f_ffree
        return Usage(len(pids), memory, cpu, files)

    def end(self, reason: str) -> None:
        """Kills all its processes at once, from any thread; `reason` is reported unless an earlier one was given."""
        self.ended = self.ended or reason
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if self._init:
                    os.kill(self._init, signal.SIGKILL)
            end(self._process.pid)

    async def gone(self) -> None:
        """Waits until it has ended; kills it if it does not end by itself."""
        try:
            async with asyncio.timeout(1.0):
                await self._process.wait()
        except TimeoutError:
            self.end("it did not end")

    async def close(self) -> None:
        """Ends it, waits for it, and closes its descriptors."""
        self.end("it was closed")
        await self._process.wait()
        ends, self.disks = (self.stdin, self.stdout, *self.disks), ()
        self.stdin = self.stdout = -1
        for descriptor in ends:
            if descriptor >= 0:
                os.close(descriptor)


def _piped(data: bytes) -> int:
    """A descriptor to read these bytes from; they fit into a pipe."""
    read, write = os.pipe()
    try:
        os.write(write, data)
    finally:
        os.close(write)
    return read


async def ready(end: int, to_write: bool = False) -> None:
    """Waits until a descriptor can be read from or written to, or its other end is closed."""
    loop = asyncio.get_running_loop()
    happened: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if to_write else (loop.add_reader, loop.remove_reader)
    add(end, lambda: happened.done() or happened.set_result(None))
    try:
        await happened
    finally:
        remove(end)


async def _child(message: int) -> int:
    """The process id of the sandbox's first process, as bubblewrap reports it; raises an error of any kind if it does
    not."""
    text = b""
    async with asyncio.timeout(START_S):
        while not text.rstrip().endswith(b"}"):
            await ready(message)
            part = os.read(message, 4096)
            if not part:
                raise EOFError
            text += part
    return int(json.loads(text)["child-pid"])


def _left(stdout: int) -> bytes | None:
    try:
        return os.read(stdout, 4096)
    except OSError:
        return None


def _arguments(limits: SandboxLimits, info: int, filter_: int, passwd: int) -> Iterator[str]:
    """bubblewrap's options; mounts are made in this order."""
    yield from ("--unshare-all", "--unshare-user", "--disable-userns", "--uid", str(_USER), "--gid", str(_GROUP))
    yield from ("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv")
    yield from ("--info-fd", str(info))
    if program():
        yield from ("--seccomp", str(filter_))
    for name, value in _ENVIRONMENT.items():
        yield from ("--setenv", name, value)
    yield from ("--ro-bind", "/usr", "/usr")
    if HIDDEN.is_relative_to("/usr"):
        yield from ("--tmpfs", str(HIDDEN), "--remount-ro", str(HIDDEN))
    for options in programs():
        yield from options
    yield from ("--perms", "0755", "--dir", "/etc", "--perms", "0644", "--ro-bind-data", str(passwd), "/etc/passwd")
    for name in ("/etc/alternatives", "/etc/ld.so.cache"):
        yield from ("--ro-bind-try", name, name)
    mib = {disk: limits.disk_mib if disk == WORK else max(1, limits.disk_mib // 4) for disk in DISKS}
    yield from ("--proc", "/proc", "--dev", "/dev")
    for disk in reversed(DISKS):
        yield from ("--perms", "0755" if disk == WORK else "1777", "--size", str(mib[disk] << 20), "--tmpfs", disk)
    yield from ("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORK, "--")


_ENVIRONMENT = {
    "HOME": WORK,
    "USER": "user",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "dumb",
    "PAGER": "cat",
    "HISTFILE": "/dev/null",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def _limited(limits: SandboxLimits) -> str:
    """The shell commands that set the limits of each process, before the script."""
    kib = limits.memory_mib << 10
    bounds = {
        "c": 0, "u": limits.processes, "v": 2 * kib, "t": limits.cpu_s, "f": limits.disk_mib << 10,
        "n": limits.open_files, "l": 0, "q": 0, "i": 2 * limits.processes,
    }  # fmt: skip
    return "".join(f"ulimit -{name} {bound} || exit 9; " for name, bound in bounds.items())
