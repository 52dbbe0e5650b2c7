"""What holds for every test: one thread per process, no telemetry, no hub, a quiet end."""

import atexit
import gc
import os
import sys
from collections import Counter

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")


def pytest_collection_finish() -> None:
    """What was imported stays: no search for garbage goes through it again, of which every training makes one."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists the skipped tests by the reason, which names what is missing."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    if not reasons:
        return
    terminalreporter.section("skipped tests")
    for reason, count in sorted(reasons.items(), key=lambda one: (-one[1], one[0])):
        terminalreporter.write_line(f"{count:5}  {reason}")


def _quiet_end() -> None:
    """DuckDB's bindings list at exit what pytest's kept tracebacks still hold; nobody needs the list."""
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


atexit.register(_quiet_end)
