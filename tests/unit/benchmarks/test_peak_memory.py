"""The memory of a process tree."""

import os
import subprocess
import sys
import time

import psutil

from benchmarks.peak_memory import PeakMemory, memory_of, tree_of

HOLDER = "import time; held = bytearray(b'x') * (200 << 20); print('holding', flush=True); time.sleep(60)"
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {HOLDER!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print("holding", flush=True)
child.wait()
"""


def test_a_grandchild_counts_and_its_peak_outlives_it():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        with PeakMemory(parent.pid, interval=0.05) as memory:
            parent.stdout.readline()
            time.sleep(0.5)
            assert len(memory.left()) == 2
            for child in psutil.Process(parent.pid).children(recursive=True):
                child.kill()
            parent.wait(timeout=20)
    assert 200 << 20 < memory.peak.bytes < 400 << 20
    assert memory.peak.bytes <= sum(memory.peak.programs.values())
    assert memory.left() == []


def test_pages_that_processes_share_count_once():
    script = (
        "import os, time, mmap\n"
        "held = mmap.mmap(-1, 100 << 20)\n"
        "held.write(b'x' * (100 << 20))\n"
        "children = [os.fork() for _ in range(2)]\n"
        "0 in children and held[:: 4096]\n"
        "0 not in children and print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as forked:
        assert forked.stdout is not None
        forked.stdout.readline()
        time.sleep(1.0)
        tree = tree_of(psutil.Process(forked.pid))
        held = sum(memory_of(tree).values())
        for process in reversed(tree):
            process.kill()
    assert 100 << 20 < held < 180 << 20


def test_a_process_that_is_gone_holds_nothing():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    root = psutil.Process(ended.pid)
    ended.wait()
    assert tree_of(root) == [] and memory_of([root]) == {}
    assert memory_of(tree_of(psutil.Process(os.getpid())))
