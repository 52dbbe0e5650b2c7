"""A host of one process: its memory is that of the process that runs now, measured once for all of its sandboxes."""

import os

import pytest

from environments import host
from environments.host import ProcessHost
from environments.sandbox import Sandbox


class Process:
    """The test's own process, or one of another pid."""

    alive = True

    def __init__(self, pid: int) -> None:
        self.pid = pid

    async def end(self) -> None:
        return


class Here(ProcessHost[Process]):
    def start(self, pid: int) -> None:
        self._process = Process(pid)

    def sandbox(self) -> Sandbox:
        raise NotImplementedError

    async def _launch(self) -> Process:
        return Process(os.getpid())

    async def _ask(self, process: Process) -> object:
        return None


def test_many_sandboxes_of_a_host_measure_its_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()
    monkeypatch.setattr(host, "memory_mb", lambda pid: (asked.append(pid), 100.0 * pid)[1])
    one = Here()
    assert one.memory_mb is None
    one.start(1)
    assert [one.memory_mb for _ in range(8)] == [100.0] * 8 and asked == [1]
    one.start(2)
    assert one.memory_mb == 200.0, "another process has its own"
    monkeypatch.setattr(host, "MEASURED_S", 0.0)
    assert one.memory_mb == 200.0 and asked == [1, 2, 2]


def test_the_memory_of_a_running_process_is_measured() -> None:
    one = Here()
    one.start(os.getpid())
    assert 10 < (one.memory_mb or 0) < 100_000
