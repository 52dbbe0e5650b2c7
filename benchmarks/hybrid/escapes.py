"""Ways out of a jail, as commands: each prints `ESCAPED` where it gets out or gets more than it may."""

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from environments.hybrid.sandbox import HybridSandbox
from schemas.failure import ActionFailure

MARK = "ESCAPED"
SECRET = "do not read this"
VARIABLE = "FLYWHEEL_ESCAPE_SECRET"


@dataclass(frozen=True, slots=True)
class Host:
    """What there is to get at outside."""

    file: Path
    """Readable by everybody."""
    port: int
    """Of a listener on this machine."""
    abstract: str
    """Of a listener on an abstract socket."""
    asked: list[bytes]
    """Who came to the listeners."""


@contextmanager
def host() -> Iterator[Host]:
    """A file, two listeners and a variable of this process for jails to get at."""
    asked: list[bytes] = []
    name = f"flywheel-{os.getpid()}"
    with (
        tempfile.TemporaryDirectory(prefix="flywheel-escape-") as folder,
        closing(socket.create_server(("0.0.0.0", 0))) as tcp,
        closing(socket.socket(socket.AF_UNIX)) as local,
    ):
        local.bind(f"\0{name}")
        local.listen()
        file = Path(folder, "secret.txt")
        file.write_text(SECRET)
        file.chmod(0o644)
        Path(folder).chmod(0o755)
        os.environ[VARIABLE] = SECRET
        for one in (tcp, local):
            threading.Thread(target=_listen, args=(one, asked), daemon=True).start()
        try:
            yield Host(file, tcp.getsockname()[1], name, asked)
        finally:
            del os.environ[VARIABLE]


def _listen(server: socket.socket, asked: list[bytes]) -> None:
    while True:
        try:
            asked.append(str(server.accept()[1]).encode())
        except OSError:
            return


def _python(*lines: str) -> str:
    return "\n".join(("python3 -I -S - <<'END'", *lines, "END"))


def _syscall(name: str, x86_64: int, aarch64: int, *arguments: object) -> str:
    """Calls the kernel by number; an answer that is no error is an escape."""
    given = ", ".join(map(str, arguments))
    number = aarch64 if os.uname().machine == "aarch64" else x86_64
    call = f"libc.syscall({number}, {given})"
    return _python(
        "import ctypes, os", "libc = ctypes.CDLL(None)", f"print('{MARK}' if {call} >= 0 else '{name} refused')"
    )


def _family(name: str, number: int) -> str:
    """Makes a socket of a family; any kind of one is an escape."""
    return _python(
        "import socket",
        "for kind in (1, 2, 3, 5):",
        "    try:",
        f"        socket.socket({number}, kind).close()",
        f"        print('{MARK}')",
        "    except OSError:",
        f"        print('{name} refused')",
    )


def _if(condition: str) -> str:
    return f"{condition} && echo {MARK}"


def escapes(there: Host) -> dict[str, str]:
    """Commands by what they try."""
    file, pid = str(there.file), os.getpid()
    address = _own_address()
    return {
        "a file of the host": _if(f"cat {file}"),
        "the host's passwords": _if("cat /etc/shadow"),
        "the host's accounts": _if("grep -E '^(root|daemon)' /etc/passwd"),
        "the homes of the host": _if("ls /root/* /home/*"),
        "a way up": _if(f"cat /work/../../../..{file}"),
        "a link to the host": f"ln -s / out; {_if(f'cat out{file}')}",
        "the root of the first process": _if(f"cat /proc/1/root{file}"),
        "the root above the root": f"cd /proc/self/root/.. && {_if(f'cat .{file}')}",
        "the folder that the host's processes are in": _if(f"cat /proc/1/cwd/..{file}"),
        "a process of the host": _if(f"test -d /proc/{pid}"),
        "the end of a process of the host": _if(f"kill -0 {pid}"),
        "the variables of the host": _if(f"cat /proc/*/environ | tr '\\0' '\\n' | grep {VARIABLE}"),
        "the descriptors of the host": (
            f"for one in /proc/$$/fd/*; do readlink $one; done | grep -v -e pipe: -e /dev/null && echo {MARK}"
        ),
        "the loopback of the host": _if(f"exec 3<>/dev/tcp/127.0.0.1/{there.port}"),
        "the address of the host": _if(f"exec 3<>/dev/tcp/{address}/{there.port}"),
        "the network": _if("timeout 2 bash -c 'exec 3<>/dev/tcp/1.1.1.1/53'"),
        "a name of the network": _python("import socket", "socket.getaddrinfo('example.org', 80)", f"print('{MARK}')"),
        "an abstract socket of the host": _python(
            "import socket",
            f"socket.socket(socket.AF_UNIX).connect('\\0{there.abstract}')",
            f"print('{MARK}')",
        ),
        "raw packets": _python("import socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", f"print('{MARK}')"),
        "the host of a virtual machine": _family("AF_VSOCK", 40),
        "the kernel's own ciphers": _family("AF_ALG", 38),
        "a pair of sockets of another family": _syscall("socketpair", 53, 199, 30, 1, 0, "b' ' * 8"),
        "a device node": _if("mknod disk b 8 0"),
        "the host's devices": _if("ls /dev | grep -E '^(sd|vd|nvme|mem|kmem|kvm|fuse|loop|nvidia)'"),
        "the kernel's memory": _if("head -c 1 /proc/kcore"),
        "a mount": _syscall("mount", 165, 40, "b'none'", "b'/work'", "b'tmpfs'", 0, 0),
        "a remount of the system": _if("mount -o remount,rw /usr"),
        "the system's programs": _if("touch /usr/bin/new"),
        "the root itself": _if("touch /new"),
        "a user namespace": _if("unshare --user --map-root-user true"),
        "a user namespace by number": _syscall("unshare", 272, 97, 0x10000000),
        "a namespace with a new process": _syscall("clone", 56, 220, 0x10000011, 0, 0, 0, 0),
        "the namespace of another": _if("nsenter --target 1 --mount true"),
        "another root": _if("chroot /work /bin/true"),
        "the rights of root": _python("import os", "os.setuid(0)", f"print('{MARK}')"),
        "a program with the rights of root": _if("su -c true"),
        "a trace of the shell": _syscall("ptrace", 101, 117, 16, "os.getppid()", 0, 0),
        "the memory of the first process": _if("head -c 1 /proc/1/mem"),
        "the memory of another": _syscall("process_vm_readv", 310, 270, 1, 0, 0, 0, 0, 0),
        "memory that no limit counts": _syscall("memfd_create", 319, 279, "b'x'", 0),
        "shared memory of System V": _syscall("shmget", 29, 194, 0, 1 << 20, 0o1600),
        "the ring of io_uring": _syscall("io_uring_setup", 425, 425, 1, "b' ' * 120"),
        "a program for the kernel": _syscall("bpf", 321, 280, 0, "b' ' * 72", 72),
        "the kernel's keys": _syscall("add_key", 248, 217, "b'user'", "b'x'", "b'y'", 1, -3),
        "the kernel's log": _if("dmesg"),
        "the kernel's settings": _if("echo '|/work/x' > /proc/sys/kernel/core_pattern"),
        "the kernel's keys on the keyboard": _if("echo b > /proc/sysrq-trigger"),
        "the kernel's own files": _if("ls /sys/kernel /sys/fs/cgroup"),
        "a restart": _syscall("reboot", 169, 142, 0xFEE1DEAD, 672274793, 0x89ABCDEF, 0),
        "the clock": _if("date -s 2001-01-01"),
        "the host's name": _if("hostname other"),
        "the keyboard of the host": _python("open('/dev/tty').read(1)", f"print('{MARK}')"),
        "more processes": _if("ulimit -u 4096"),
        "more of the processor": _if('test "$(nice -n -10 nice 2>/dev/null)" -lt 0'),
        "a full disk": f"head -c 200000000 /dev/zero > big; {_if('test $(stat -c %s big) -gt 40000000')}",
        "a full disk of the temporary": (
            f"head -c 90000000 /dev/zero > /tmp/big; {_if('test $(stat -c %s /tmp/big) -gt 40000000')}"
        ),
        "a full disk of the shared memory": (
            f"head -c 90000000 /dev/zero > /dev/shm/big; {_if('test $(stat -c %s /dev/shm/big) -gt 40000000')}"
        ),
        "more memory for one": _python("x = bytearray(2 << 30)", f"print('{MARK}')"),
        "more memory for many": (
            "for i in 1 2 3 4 5 6 7 8; do python3 -I -S -c 'x = bytearray(100 << 20); import time; time.sleep(3)' & "
            f"done; wait; echo {MARK}"
        ),
        "very many files": _python(
            "import os",
            "for one in range(200000):",
            "    os.close(os.open(f'/work/{one}', os.O_CREAT, 0o600))",
            f"print('{MARK}')",
        ),
        "a fork bomb": f":(){{ :|:& }}; :; sleep 1; {_if('test $(ls -d /proc/[0-9]* | wc -l) -gt 40')}",
        "the end of everything": f"kill -9 -1; sleep 1; echo {MARK}",
        "the end of the first process": _if("kill -9 1; sleep 0.2; test ! -d /proc/1"),
        "what cannot be interrupted": f"trap '' INT TERM HUP; setsid sleep 98765 & sleep 98765; echo {MARK}",
    }


def _own_address() -> str:
    """An address of this machine on its network; its loopback if it has none."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
        try:
            asking.connect(("192.0.2.1", 9))
            return str(asking.getsockname()[0])
        except OSError:
            return "127.0.0.1"


async def tried(sandbox: HybridSandbox, command: str) -> str:
    """What an escape printed; what the trajectory failed of where it ended the shell."""
    try:
        ran = await sandbox.workspace.terminal.run(command)
    except ActionFailure as failure:
        return f"[{failure.reason}]"
    return f"{ran.output}{ran.note and f'[{ran.note}]'}"


def leftovers(argument: str = "98765") -> list[int]:
    """Processes of this machine with this argument."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if argument.encode() in words:
            found.append(int(place.parent.name))
    return found
