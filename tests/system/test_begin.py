"""A signal in a command's first moments, and a second one in its last: its status and one line, never a traceback."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tiers import NIGHTLY

HEEDED = re.compile(r"^SigCgt:\s*([0-9a-f]+)$", re.MULTILINE)
ENDING = """
import time, psutil
from apps.process import heeded
psutil.wait_procs = lambda *_, **__: time.sleep(1.0)
with heeded():
    print("heeds", flush=True)
    time.sleep(60)
"""

DESTROYING = """
import time
from apps.process import heeded
class Slow:
    def __call__(self):
        print("heeds", flush=True)
        time.sleep(60)
    def __repr__(self):
        time.sleep(1)
        return "slow"
class Destroyed:
    __del__ = Slow()
with heeded():
    Destroyed()
    time.sleep(60)
"""


def heeds_sigterm(process: subprocess.Popen[str]) -> bool:
    found = HEEDED.search(Path(f"/proc/{process.pid}/status").read_text())
    return bool(found and int(found[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("after_s", [0.0, 0.03, 0.1] if NIGHTLY else [0.03])
def test_a_signal_while_a_command_is_still_loading_ends_it_with_one_line(
    number: signal.Signals, after_s: float
) -> None:
    command = [sys.executable, "-m", "apps.cli", "run", "--dry-run"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not heeds_sigterm(process):
        time.sleep(0.002)
    time.sleep(after_s)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number, said
    assert re.fullmatch(rf"flywheel: ended by {number.name}; [^\n]*\.\n", said), said


@pytest.mark.slow
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_while_a_command_ends_changes_nothing(first: signal.Signals, second: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ENDING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "heeds\n"
    process.send_signal(first)
    time.sleep(0.4)
    process.send_signal(second)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + first, said
    assert said.startswith(f"flywheel: ended by {first.name}; "), said


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_meets_a_destructor_leaves_no_half_line_of_python_s_before_ours(number: signal.Signals) -> None:
    words = [sys.executable, "-c", DESTROYING]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "heeds\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number, said
    assert re.fullmatch(rf"flywheel: ended by {number.name}; [^\n]*\.\n", said), said
