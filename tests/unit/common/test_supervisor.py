"""A supervised program ends with its starter, with all that it started, and is given time where it asks for it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from common.process import ChildProcess, ours
from common.supervisor import supervised
from tests.processes import alive, left

STARTER = (
    "import subprocess, sys; from common.supervisor import supervised\n"
    "subprocess.Popen([*supervised(folder=sys.argv[1]), *sys.argv[2:]]).wait()"
)
PROGRAM = (
    "import os, subprocess\n"
    "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    "print(os.getpid(), os.getppid(), child.pid, flush=True); child.wait()"
)
POLITE = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), print('in order'), sys.exit()))\n"
    "print('ready', flush=True); time.sleep(600)"
)


def test_nothing_is_left_of_a_program_whose_starter_is_killed_outright(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    command = [sys.executable, "-c", STARTER, str(folder), sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pids = [int(pid) for pid in starter.stdout.readline().split()]
        assert all(map(alive, pids)) and len(pids) == 3
        starter.kill()
    assert left(pids) == [] and not folder.exists()


def test_a_program_ends_where_its_supervisor_is_killed(tmp_path: Path) -> None:
    child = ChildProcess([sys.executable, "-c", PROGRAM], tmp_path / "log", ours())
    assert child.wait(lambda: child.tail != "nothing", 60)
    program, supervisor, _ = (int(pid) for pid in child.tail.split())
    os.kill(supervisor, signal.SIGKILL)
    assert left([program]) == [] and child.process.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("program", "status"),
    [("exit 7", 7), ("exit 0", 0), ("kill -9 $$", -9), ("kill -2 $$", -2), ("kill -11 $$", -11)],
)
def test_the_exit_status_is_the_program_s(program: str, status: int) -> None:
    assert subprocess.run([*supervised(), "/bin/sh", "-c", program], check=False).returncode == status


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    child = ChildProcess(["nobody-serves"], tmp_path / "log", ours())
    assert child.process.wait(60) == 127 and child.tail == "nobody-serves: No such file or directory"


def test_a_program_goes_on_when_the_thread_that_started_it_ends(tmp_path: Path) -> None:
    made: list[ChildProcess] = []
    thread = threading.Thread(target=lambda: made.append(ChildProcess(["sleep", "600"], tmp_path / "log", ours())))
    thread.start()
    thread.join()
    time.sleep(1.0)
    assert made[0].status is None
    made[0].stop()
    assert made[0].status == -signal.SIGTERM


@pytest.mark.parametrize(("grace_s", "text"), [(20.0, "ready\nin order"), (0.0, "ready")])
def test_a_program_has_so_long_to_end_in_order(tmp_path: Path, grace_s: float, text: str) -> None:
    child = ChildProcess([sys.executable, "-c", POLITE], tmp_path / "log", ours(), grace_s)
    assert child.wait(lambda: child.tail == "ready", 60)
    child.stop()
    assert child.tail == text
