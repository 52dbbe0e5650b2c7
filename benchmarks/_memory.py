"""How much memory a command and everything it starts hold at most: server, browsers, trainers.

Proportional set size (`/proc/PID/smaps_rollup`): a page that n processes share counts 1/n in each, so the sum over the
tree counts every page once. Sampled, so a peak shorter than the interval can be missed.
"""

import threading
from dataclasses import dataclass, field
from pathlib import Path

import psutil

INTERVAL = 0.5
"""Seconds between samples."""


@dataclass(slots=True)
class Peak:
    """The highest sample."""

    bytes: int = 0
    processes: dict[str, int] = field(default_factory=dict)
    """Bytes by program, at that moment."""

    @property
    def gib(self) -> float:
        """The same in GiB."""
        return self.bytes / 2**30


class PeakMemory:
    """Watches a process and its descendants from another thread until it is closed; a context manager."""

    def __init__(self, pid: int, interval: float = INTERVAL) -> None:
        self.peak = Peak()
        self._root, self._interval = psutil.Process(pid), interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._interval):
            held = tree_memory(self._root)
            if sum(held.values()) > self.peak.bytes:
                self.peak = Peak(sum(held.values()), held)


def tree_memory(root: psutil.Process) -> dict[str, int]:
    """Proportional bytes of a process and its descendants, by program; those that end meanwhile count nothing."""
    held: dict[str, int] = {}
    try:
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return held
    for process in tree:
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
