"""Looking at other processes, any of which may end between two looks."""

import time
from collections.abc import Iterable

import psutil

from common.supervisor import __file__ as SUPERVISOR


def words(process: psutil.Process) -> list[str]:
    """Its command line; empty where it has just ended, and of a supervisor, which has that of its program."""
    try:
        found = process.cmdline()
    except psutil.Error:
        return []
    return [] if SUPERVISOR in found else found


def running(module: str, among: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that run a Python module, in the order given."""
    return [one for one in among if module in words(one)]


def mentioning(text: str, among: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those in whose command line a text stands, in the order given."""
    return [one for one in among if text in " ".join(words(one))]


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def left(pids: Iterable[int], seconds: float = 5.0) -> list[int]:
    """Those of these processes that are still alive after so many seconds; looks until none is."""
    until, there = time.monotonic() + seconds, list(pids)
    while (there := [pid for pid in there if alive(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    return there
