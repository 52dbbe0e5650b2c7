"""Check the machine for `flywheel doctor`: packages, memory and cores. These checks refuse no run."""

import os
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from schemas.check import Probe
from schemas.failure import FlywheelError

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"
MEMORY_GIB = 3.0
"""Free memory in GiB below which a laptop run is likely to be killed."""


def machine_probes() -> list[Probe]:
    """Return the probes of packages, memory and cores."""
    examined = {"packages": compare_packages, "memory": _memory, "cores": _cores}
    return [Probe(name, examine, required=False) for name, examine in examined.items()]


def compare_packages(lock: Path = LOCK) -> str:
    """Check that the installed packages have the pinned versions. Local builds such as `+cpu` count as equal.

    Raises:
        FlywheelError: some packages have other versions. The message has their names.
    """
    if not lock.is_file():
        return "no requirements.lock next to the code: not compared"
    pins = dict(re.findall(r"^([^\s=#]+)==(\S+)", lock.read_text(), re.MULTILINE))
    wrong = [
        f"{name} {found or 'missing'} (pinned {pin})"
        for name, pin in pins.items()
        if (found := _installed(name)) != pin
    ]
    if wrong:
        hint = "Run `make setup` again, or `pip install -r requirements.lock`."
        raise FlywheelError(", ".join(wrong[:6]), hint)
    return f"{len(pins)} packages as pinned"


def _memory() -> str:
    free, whole = (getattr(psutil.virtual_memory(), key) / 2**30 for key in ("available", "total"))
    found = f"{free:.1f} of {whole:.1f} GiB free"
    if free < MEMORY_GIB:
        hint = "Close something, or lower train.batch and how many sandboxes the environments have (`environments`)."
        raise FlywheelError(found, hint)
    return found


def _cores() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{cores}" if cores >= 2 else "1: it works, slowly; set train.processes=1 and fewer sandboxes"


def _installed(name: str) -> str | None:
    try:
        return version(name).split("+")[0]
    except PackageNotFoundError:
        return None
