"""Measure the peak memory of a command and all its processes: server, browsers, trainers.

Proportional set size (`/proc/PID/smaps_rollup`): a page that n processes share counts 1/n in each, so the sum over the
tree counts every page once. It is sampled, so a peak shorter than the interval can be missed.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

INTERVAL = 0.5
"""Seconds between samples."""


@dataclass(slots=True)
class Peak:
    """The highest samples."""

    bytes: int = 0
    """Of the whole tree at one moment."""
    programs: dict[str, int] = field(default_factory=dict)
    """Of each program, each at its own worst moment."""

    @property
    def gib(self) -> float:
        """The whole tree's in GiB."""
        return self.bytes / 2**30


class PeakMemory:
    """Watches a process and its descendants from another thread until it is closed; a context manager."""

    def __init__(self, pid: int, interval: float = INTERVAL) -> None:
        self.peak = Peak()
        self._root, self._interval = psutil.Process(pid), interval
        self._seen: set[psutil.Process] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()

    def left(self) -> list[psutil.Process]:
        """The processes seen that still run."""
        return [one for one in self._seen if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]

    def _watch(self) -> None:
        while not self._over.wait(self._interval):
            tree = tree_of(self._root)
            self._seen.update(tree)
            held = memory_of(tree)
            self.peak.bytes = max(self.peak.bytes, sum(held.values()))
            for name, size in held.items():
                self.peak.programs[name] = max(size, self.peak.programs.get(name, 0))


def tree_of(root: psutil.Process) -> list[psutil.Process]:
    """A process and its descendants; empty if it is gone."""
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def memory_of(processes: Iterable[psutil.Process]) -> dict[str, int]:
    """Proportional bytes by program; processes that end meanwhile count nothing."""
    held: dict[str, int] = {}
    for process in processes:
        try:
            name, size = _program(process), process.memory_full_info().pss
        except psutil.Error:
            continue
        held[name] = held.get(name, 0) + size
    return held


def _program(process: psutil.Process) -> str:
    """What it runs: the module after `-m`, or the program's name."""
    words = process.cmdline()
    if "-m" in words[:4] and words.index("-m") + 1 < len(words):
        return words[words.index("-m") + 1]
    return process.name()


def folder_bytes(folder: Path) -> int:
    """Bytes of all files under a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
