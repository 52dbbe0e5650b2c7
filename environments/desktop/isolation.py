"""Isolate a desktop from this machine: read-only programs and fonts, no network, no processes and no files of its
users.

A desktop has a terminal, so a policy can run every installed program. `bubblewrap` gives it its own namespaces: its
home and its temporary files are in memory. They disappear with the desktop, together with all of its processes, even
after this process was killed.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from environments.bubblewrap import bubblewrap, owned, programs
from environments.seccomp import sockets
from schemas.failure import FlywheelError

HOME = "/home/user"
"""Home folder of a desktop in namespaces."""
USER = 1000
ROOT = Path(__file__).parents[2]
"""Folder from which the box's own modules are imported."""
_ETC = (
    "alternatives", "fonts", "gtk-2.0", "gtk-3.0", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mailcap",
    "mime.types", "pango", "pcmanfm", "ssl/openssl.cnf", "X11", "xdg",
)  # fmt: skip
_ACCOUNTS = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nuser:x:{USER}:{USER}:user:{HOME}:/bin/bash\n",
    "group": f"root:x:0:\nuser:x:{USER}:\n",
    "hosts": "127.0.0.1 localhost desktop\n",
}
_FILTER = "filter"
_OPEN = "Set environments.NAME.isolation=none to let desktops see this machine, where you trust who acts in them."


def environment(home: str, temporary: str) -> dict[str, str]:
    """Returns the environment variables of a desktop's programs, which keep programs from starting other services."""
    return {
        "HOME": home,
        "TMPDIR": temporary,
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": "/bin/bash",
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "XAUTHORITY": f"{home}/.Xauthority",
        "XDG_RUNTIME_DIR": temporary,
        "DBUS_SESSION_BUS_ADDRESS": "disabled:",
        "NO_AT_BRIDGE": "1",
        "GSETTINGS_BACKEND": "memory",
        "GIO_USE_VFS": "local",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def walls(megabytes: int, files: dict[str, int], folders: Mapping[str, int] | None = None) -> list[str]:
    """Returns the command prefix that runs a desktop's command in its namespaces.

    Args:
        megabytes: size of the home, and of the temporary files.
        files: open files of `memory_files`, by name.
        folders: further writable folders in memory, each with its size in MB.
    """
    size = ["--size", str(megabytes << 20), "--tmpfs"]
    command = [
        bubblewrap(f"`apt install bubblewrap`. {_OPEN}"), *owned(), "--die-with-parent", "--unshare-user",
        "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
        "--hostname", "desktop", "--uid", str(USER), "--gid", str(USER),
        "--proc", "/proc", "--dev", "/dev", *size, "/tmp", *size, HOME, "--dir", "/run", "--dir", "/var/tmp",
    ]  # fmt: skip
    for place, limit in (folders or {}).items():
        command += ["--size", str(limit << 20), "--tmpfs", place]
    for source, place in _seen():
        command += ["--ro-bind", source, place]
    for options in programs():
        command += options
    for name, descriptor in files.items():
        command += ["--seccomp", str(descriptor)] if name == _FILTER else ["--file", str(descriptor), f"/etc/{name}"]
    return [*command, "--chdir", HOME, "--"]


def memory_files() -> dict[str, int]:
    """Opens files in memory with the users, hosts and groups of a desktop, and the filter of its system calls if there
    is one for this machine. The caller closes them."""
    contents = {name: content.encode() for name, content in _ACCOUNTS.items()}
    found: dict[str, int] = {}
    for name, content in (contents | ({_FILTER: sockets()} if sockets() else {})).items():
        found[name] = os.memfd_create(name)
        os.write(found[name], content)
        os.lseek(found[name], 0, os.SEEK_SET)
    return found


def _seen() -> Iterator[tuple[str, str]]:
    """Yields the readable files and folders, each with its path in the desktop."""
    wanted = [Path("/usr"), *(Path("/etc", name) for name in _ETC), Path("/var/cache/fontconfig")]
    wanted += [Path(sys.prefix), Path(sys.base_prefix), ROOT / "environments"]
    wanted += [Path(place) for place in sys.path if Path(place).name in ("site-packages", "dist-packages")]
    for place in dict.fromkeys(wanted):
        if place == Path("/usr") or (place.exists() and not place.is_relative_to("/usr")):
            yield str(place), str(place)


@cache
def require_walls() -> str:
    """Raises FlywheelError if this machine cannot make namespaces."""
    files = memory_files()
    try:
        command = [*walls(1, files), "/bin/true"]
        done = subprocess.run(command, pass_fds=tuple(files.values()), capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        raise FlywheelError(f"bubblewrap does not run: {error}.", _OPEN) from error
    finally:
        for descriptor in files.values():
            os.close(descriptor)
    if done.returncode:
        answer = done.stderr.strip()[-200:] or f"it ends with {done.returncode}"
        raise FlywheelError(f"bubblewrap can make no namespaces here: {answer}.", _OPEN)
    return "desktops have namespaces of their own"
