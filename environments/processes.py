"""Measure the memory of a host's processes."""

import psutil


def memory_mb(pid: int) -> float:
    """Returns the resident memory of a process and its descendants, in MB (shared pages count in each); 0 if it is
    gone."""
    try:
        first = psutil.Process(pid)
        all_of_them = [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    return sum(map(_resident, all_of_them)) / 1e6


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0
