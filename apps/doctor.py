"""`flywheel doctor`: what a run needs, checked before anything is spent; each check names its mend."""

import asyncio
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from apps.environment import PROJECT, home
from apps.lakes import lake_if_any
from environments.catalog import catalog
from environments.chromium.browser import Browser, browser_version, find_browser
from schemas.config import Config
from schemas.failure import FlywheelError, SandboxFailure
from storage.address import require_bucket
from storage.address import resolve as resolve_address
from storage.blobs import FsspecBlobStore

LOCK = PROJECT / "requirements.lock"
MEMORY_GIB = 3.0
"""Free memory below which a laptop run is likely to be killed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    name: str
    ok: bool
    found: str
    mend: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The check as `--json` prints it."""
        return asdict(self)


def examine(config: Config) -> list[Check]:
    """Every check, in the order in which a run would need them."""
    return [*quick_checks(config), check_start(config), check_versions(), check_memory(), check_cores()]


def quick_checks(config: Config) -> list[Check]:
    """What `flywheel run` checks each time: under two seconds, nothing left behind."""
    return [
        _attempt("tasks", lambda: f"{len(catalog(config))} tasks, all known"),
        _attempt("browser", lambda: _browser(config)),
        _attempt("storage", lambda: _storage(config)),
        *check_disks(config),
    ]


def require_quick(config: Config) -> None:
    """Raises the first quick check that fails, as the error a person reads."""
    catalog(config)
    for check in quick_checks(config):
        if not check.ok:
            raise FlywheelError(f"{check.name}: {check.found}", check.mend)


def check_start(config: Config) -> Check:
    """Whether the browser starts and answers."""
    if config.environment.kind == "fake":
        return Check("browser starts", True, "not needed: `environment.kind` is fake")

    async def start() -> str:
        browser = await Browser.launch(find_browser(config.environment.browser))
        await browser.close()
        return "it started and answered"

    try:
        return _attempt("browser starts", lambda: asyncio.run(start()))
    except SandboxFailure as error:
        return Check("browser starts", False, error.reason, "Run it by hand to see what it says.")


def check_versions(lock: Path = LOCK) -> Check:
    """Whether the installed packages are the pinned ones; local builds such as `+cpu` count as the same."""
    if not lock.is_file():
        return Check("packages", True, "no requirements.lock beside the code: not compared")
    pins = dict(re.findall(r"^([^\s=#]+)==(\S+)", lock.read_text(), re.MULTILINE))
    wrong = [
        f"{name} {found or 'missing'} (pinned {pin})"
        for name, pin in pins.items()
        if (found := _installed(name)) != pin
    ]
    mend = "Run `make setup` again, or `pip install -r requirements.lock`."
    return Check(
        "packages", not wrong, ", ".join(wrong[:6]) or f"{len(pins)} packages as pinned", mend if wrong else ""
    )


def check_disks(config: Config) -> list[Check]:
    """Free space for the lake (if it is a folder) and for the work folder."""
    places = {"disk of the work folder": home()}
    if "://" not in config.lake.uri:
        places["disk of the lake"] = Path(config.lake.uri).expanduser().absolute()
    return [_disk(name, place, config.lake.min_free_mb) for name, place in places.items()]


def check_memory() -> Check:
    """Free memory."""
    free, whole = (getattr(psutil.virtual_memory(), key) / 2**30 for key in ("available", "total"))
    well = free >= MEMORY_GIB
    mend = "" if well else "Close something, or lower environment.browsers, environment.pages and train.batch."
    return Check("memory", well, f"{free:.1f} of {whole:.1f} GiB free", mend)


def check_cores() -> Check:
    """Cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    well = cores >= 2
    mend = "" if well else "It works, slowly; set environment.browsers=1 and train.processes=1."
    return Check("cores", True, f"{cores}", mend)


def show_checks(checks: list[Check]) -> None:
    """The checks for people."""
    console = Console(highlight=False)
    for check in checks:
        word = "[green]ok  [/green]" if check.ok else "[red]MEND[/red]"
        console.print(f"{word} {check.name:<24} {check.found}", soft_wrap=True)
        if check.mend:
            console.print(f"{'':<29} [dim]{check.mend}[/dim]", soft_wrap=True)


def _attempt(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except FlywheelError as error:
        return Check(name, False, error.problem, error.hint)


def _browser(config: Config) -> str:
    if config.environment.kind == "fake":
        return "not needed: `environment.kind` is fake"
    path = find_browser(config.environment.browser)
    return f"{browser_version(path)} at {path}"


def _storage(config: Config) -> str:
    """Opens the lake if there is one, and writes and removes a probe; makes no lake."""
    place = resolve_address(config.lake)
    with place.explained():
        require_bucket(place)
        if lake := lake_if_any(config):
            lake.blobs.put("probe", b"")
            lake.blobs.delete("probe")
            return f"lake {lake.lake_id} at {lake.uri}, writable"
        if place.local:
            _writable(Path(place.uri))
        else:
            store = FsspecBlobStore.open(config.lake)
            store.put("probe", b"")
            store.delete("probe")
    return f"{place.uri} is free for a new lake"


def _writable(folder: Path) -> None:
    above = _existing(folder)
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise FlywheelError(f"{folder} cannot be made: {above} is not writable.", "Set `lake.uri` to another folder.")


def _disk(name: str, place: Path, least_mb: int) -> Check:
    free = shutil.disk_usage(_existing(place)).free / 1e6
    well = free >= least_mb
    mend = "" if well else f"Free some space; `lake.min_free_mb` asks for {least_mb} MB."
    return Check(name, well, f"{free / 1000:.1f} GB free at {place}", mend)


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def _installed(name: str) -> str | None:
    try:
        return version(name).split("+")[0]
    except PackageNotFoundError:
        return None
