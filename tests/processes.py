"""Looking at other processes, any of which may end between two looks."""

from collections.abc import Iterable

import psutil


def words(process: psutil.Process) -> list[str]:
    """Its command line, empty where it has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def running(module: str, among: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that run a Python module, in the order given."""
    return [one for one in among if module in words(one)]
