"""What holds for every test: one thread per process, no telemetry, no hub, the nightly tier, a quiet end."""

import atexit
import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.command import Call
from tests.tiers import NIGHTLY, NO_BROWSER, SLOW, lacks, missing_of

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")

pytest_plugins = ["pytester", "tests.fixtures.sentences"]

TIERS = {
    "nightly": (NIGHTLY, lacks("nightly", "make test-nightly (one file: FLYWHEEL_NIGHTLY=1 .venv/bin/pytest FILE)")),
    "slow": (SLOW, lacks("slow", "make test-slow (one file: .venv/bin/pytest FILE)")),
}
"""Markers of tests that run only if they are asked for: whether they are, and the reason why one is skipped."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips the nightly and the slow tests, unless they are asked for."""
    for item in items:
        for marker, (asked, reason) in TIERS.items():
            if not asked and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason), append=False)


def pytest_collection_finish() -> None:
    """What was imported stays: no search for garbage goes through it again, of which every training makes one."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints a table of the skipped tests: how many, what is missing, the command that brings it."""
    counts = Counter(
        missing_of(str(report.longrepr[2]).removeprefix("Skipped: "))
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    if not counts:
        return
    terminalreporter.section("skipped tests")
    width = max(len(part) for part, _ in counts)
    for (part, command), count in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        terminalreporter.write_line(f"{count:5}  {part:{width}}  {command}".rstrip())


@pytest.fixture
def flywheel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command line in this process: status, output, errors."""
    from apps import cli, process

    def call(*words: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["flywheel", *map(str, words)])
        monkeypatch.setattr(process, "ignore", lambda: None)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return call


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which bubblewrap is not installed, as whoever asks first finds it."""
    from environments.registry import lack_of

    lack_of.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    yield
    lack_of.cache_clear()


@pytest.fixture(scope="session")
def real_browser() -> None:
    """Skips tests of real pages where there is no Chromium."""
    from environments.chromium.browser import find_browser
    from schemas.failure import FlywheelError

    try:
        find_browser()
    except FlywheelError:
        pytest.skip(NO_BROWSER)


@pytest.fixture(scope="session")
def forking() -> Iterator[Any]:
    from tests.trainers import forked_trainers

    with forked_trainers() as launcher:
        yield launcher


@pytest.fixture(scope="module")
def forked(forking: Any) -> Iterator[None]:
    """Trainers begin by a fork of a process that has imported torch, in the tests that ask for it."""
    from tasks.launching.launchers import LAUNCHERS

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LAUNCHERS, "local", forking)
        yield


def _quiet_end() -> None:
    """DuckDB's bindings list at exit what pytest's kept tracebacks still hold; nobody needs the list."""
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


atexit.register(_quiet_end)
