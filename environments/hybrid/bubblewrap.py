"""Isolate processes in a bubblewrap sandbox with its own root, process table, network and disks.

The sandbox can read the system's programs (`/usr` and folders such as `/lib`), `/etc/alternatives` and
`/etc/ld.so.cache`; its `/etc/passwd` is made for it. It sees no other file of the machine. It can write to three small
file systems in memory: `/work`, `/tmp` and `/dev/shm`. They disappear when the sandbox ends.

The sandbox has no network except its own loopback device. Its processes have no capabilities and cannot gain any. They
cannot create user namespaces, and `seccomp` allows few system calls. If this process runs as root, they run as
`nobody`. The kernel limits each process, and `supervisor` limits all processes together.

No process outlives the sandbox (`--die-with-parent`). If this process ends or is killed, bubblewrap ends. If bubblewrap
ends, the first process of the sandbox ends, and with it all others.

The host accesses the sandbox's files through a descriptor of `/work` (`files`), never through a path.
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
"""Folder of this package. It is hidden from the sandbox if it is installed below `/usr`."""
_USER, _GROUP = 1000, 1000
_PASSWD = f"user:x:{_USER}:{_GROUP}:user:{WORK}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"
_CHILDREN = "/proc/{0}/task/{0}/children"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one sandbox."""

    memory_mib: int = 256
    """Resident memory of all processes together. The address space of each process may be twice as large."""
    disk_mib: int = 32
    """Size of `/work`. `/tmp` and `/dev/shm` each have a quarter of this size."""
    files: int = 4000
    """Files and folders in `/work`, `/tmp` and `/dev/shm` together."""
    processes: int = 32
    cpu_s: int = 60
    """Processor time of all processes together; also the limit of each single process."""
    open_files: int = 64


@dataclass(frozen=True, slots=True)
class Mounts:
    """Changes to the folders of the machine that a sandbox can read."""

    readable: tuple[tuple[str, str], ...] = ()
    """Further folders and files: the path on the machine, and the path in the sandbox."""
    hidden: tuple[str, ...] = ()
    """Folders below `/usr` that are empty in the sandbox."""
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links: the target, and the path of the link."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that all processes of a sandbox use together."""

    processes: int
    memory: int
    """Bytes of resident memory. A page that two processes share counts twice."""
    cpu_s: float
    files: int


EVERYTHING = Mounts()
"""The folders of the machine that every sandbox can read."""


def owner() -> tuple[int, int] | None:
    """User and group of the sandbox's processes on the host: `nobody` if this process runs as root.

    None if the sandbox's processes have the user and group of this process.
    """
    if os.geteuid() != 0:
        return None
    user = pwd.getpwnam("nobody")
    return user.pw_uid, user.pw_gid


class Bubblewrap:
    """One running sandbox. `start` makes it, and `close` ends it."""

    def __init__(self, process: asyncio.subprocess.Process, limits: SandboxLimits, stdin: int, stdout: int) -> None:
        self._process = process
        self._init = 0
        self.limits = limits
        self.stdin, self.stdout = stdin, stdout
        """Standard input and output of the script. `stdout` also carries standard error. Neither blocks."""
        for descriptor in (stdin, stdout):
            os.set_blocking(descriptor, False)
        self.ended = ""
        """Reason for which the sandbox was ended early; empty if it was not."""
        self.disks: tuple[int, ...] = ()
        """Descriptors of `DISKS`."""
        self._own_cpu: dict[tuple[int, str], float] = {}
        """Processor seconds of each process at the last measurement, by process id and start time."""
        self._gone_cpu = 0.0
        """Processor seconds of ended processes."""

    @classmethod
    async def start(
        cls, limits: SandboxLimits, script: str, *arguments: str, mounts: Mounts = EVERYTHING
    ) -> "Bubblewrap":
        """Starts a sandbox in which bash runs a script.

        Raises:
            FlywheelError: bubblewrap is not installed.
            SandboxFailure: the sandbox did not start; the message has its output.
        """
        bwrap = bubblewrap(INSTALL)
        sweep()
        (inside_in, stdin), (stdout, inside_out), (message, info) = (os.pipe() for _ in range(3))
        passed = (info, _piped(program()), _piped(_PASSWD.encode()))
        options = (*owned(), *_arguments(limits, mounts, *passed))
        command = [bwrap, *options, "/bin/bash", "-c", _limited(limits) + script, "shell"]
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
            await asyncio.wait((spawning,))  # a process can be ended only after its start
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
        """Whether the sandbox runs."""
        return self._process.returncode is None and not self.ended

    @property
    def killed(self) -> bool:
        """Whether a process outside the sandbox killed bubblewrap. Processes in the sandbox cannot kill it."""
        return self._process.returncode == -signal.SIGKILL and not self.ended

    @property
    def pid(self) -> int:
        """Process id of bubblewrap on the host."""
        return self._process.pid

    def enter(self) -> None:
        """Opens the disks. Call it when the script runs, before any command of a policy starts."""
        root = f"/proc/{self.pids()[1]}/root"
        self.disks = tuple(os.open(f"{root}{disk}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for disk in DISKS)

    def pids(self) -> list[int]:
        """Process ids on the host: bubblewrap's first process in the sandbox, the script's shell, then all others."""
        found, waiting = [], [self._init]
        while waiting:
            pid = waiting.pop(0)
            found.append(pid)
            with contextlib.suppress(OSError, ValueError):
                waiting += map(int, Path(_CHILDREN.format(pid)).read_text().split())
        return found

    def signal(self, number: int) -> None:
        """Sends a signal to all processes except bubblewrap's own and the script's shell."""
        for pid in self.pids()[2:]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def usage(self) -> Usage:
        """Measures the current usage. Call it repeatedly, because the processor time of an ended process can be lost.

        A parent that waits for a child process inherits the child's time. A parent that does not wait inherits nothing.
        The sandbox therefore also adds up the last measured times of all processes, and takes the larger sum.
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
        """Kills all processes at once, from any thread. The first given `reason` is reported."""
        self.ended = self.ended or reason
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if self._init:
                    os.kill(self._init, signal.SIGKILL)
            end(self._process.pid)

    async def gone(self) -> None:
        """Waits for the sandbox to end, and kills it after one second."""
        try:
            async with asyncio.timeout(1.0):
                await self._process.wait()
        except TimeoutError:
            self.end("it did not end")

    async def close(self) -> None:
        """Ends the sandbox, waits for its end, and closes its descriptors."""
        self.end("it was closed")
        await self._process.wait()
        ends, self.disks = (self.stdin, self.stdout, *self.disks), ()
        self.stdin = self.stdout = -1
        for descriptor in ends:
            if descriptor >= 0:
                os.close(descriptor)


def _piped(data: bytes) -> int:
    """Returns a descriptor from which these bytes can be read. They must fit into a pipe."""
    read, write = os.pipe()
    try:
        os.write(write, data)
    finally:
        os.close(write)
    return read


async def ready(end: int, to_write: bool = False) -> None:
    """Waits until a descriptor is readable or writable, or its other end is closed."""
    loop = asyncio.get_running_loop()
    happened: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if to_write else (loop.add_reader, loop.remove_reader)
    add(end, lambda: happened.done() or happened.set_result(None))
    try:
        await happened
    finally:
        remove(end)


async def _child(message: int) -> int:
    """Returns the process id of the sandbox's first process, as bubblewrap reports it.

    Raises:
        TimeoutError, OSError, EOFError, ValueError, KeyError: bubblewrap reports no process id.
    """
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


def _arguments(limits: SandboxLimits, mounts: Mounts, info: int, filter_: int, passwd: int) -> Iterator[str]:
    """Yields bubblewrap's options. bubblewrap makes the mounts in this order."""
    yield from ("--unshare-all", "--unshare-user", "--disable-userns", "--uid", str(_USER), "--gid", str(_GROUP))
    yield from ("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv")
    yield from ("--info-fd", str(info))
    if program():
        yield from ("--seccomp", str(filter_))
    for name, value in _ENVIRONMENT.items():
        yield from ("--setenv", name, value)
    yield from ("--ro-bind", "/usr", "/usr")
    for folder in (*((str(HIDDEN),) if HIDDEN.is_relative_to("/usr") else ()), *mounts.hidden):
        yield from ("--tmpfs", folder, "--remount-ro", folder)
    for options in programs():
        yield from options
    yield from ("--perms", "0755", "--dir", "/etc", "--perms", "0644", "--ro-bind-data", str(passwd), "/etc/passwd")
    for name in ("/etc/alternatives", "/etc/ld.so.cache"):
        yield from ("--ro-bind-try", name, name)
    mib = {disk: limits.disk_mib if disk == WORK else max(1, limits.disk_mib // 4) for disk in DISKS}
    for place, inside in mounts.readable:
        yield from ("--ro-bind", place, inside)
    for target, link in mounts.links:
        yield from ("--symlink", target, link)
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
    """Returns the shell commands that limit each process. They run before the script."""
    kib = limits.memory_mib << 10
    bounds = {
        "c": 0, "u": limits.processes, "v": 2 * kib, "t": limits.cpu_s, "f": limits.disk_mib << 10,
        "n": limits.open_files, "l": 0, "q": 0, "i": 2 * limits.processes,
    }  # fmt: skip
    return "".join(f"ulimit -{name} {bound} || exit 9; " for name, bound in bounds.items())
