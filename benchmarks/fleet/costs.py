"""What a sandbox, a row, a commit and a gate take on this machine, measured."""

import contextlib
import os
import threading
import time
from statistics import median

import psutil

from benchmarks.fleet.simulation import Costs
from benchmarks.pool.__main__ import BROWSERS, PAGES, plan
from benchmarks.shared.memory import PeakMemory, tree_of
from curation.gates.registry import gates_of, verdicts_of
from models.explorer import PageExplorer
from rollout.actor import Actor
from rollout.runner import roll_out_all
from rollout.trajectory import FinishedTrajectory
from schemas.config import Config
from schemas.table import utc_now
from storage.lake import Lake
from tasks.collect.records import write
from tasks.running.console import bar
from tasks.shared.gate_facts import Known
from tasks.shared.suite import catalog

FEW, MANY, CHUNKS = 4, 64, 40
"""Trajectories in the chunks by which rows and commits are told apart, and how many chunks of each are written."""
WATCH_S = 0.25
"""How often processors are looked at."""
FEWEST = 3.0
"""Where none of so many failed, the rate is at most 3 / so many, with 95 % (the rule of three)."""


def measure(config: Config, count: int, replace_s: float) -> Costs:
    """Rolls out so many trajectories of the explorer in this process's browsers, writes them and asks the gates.

    Args:
        config: its suite is rolled out, its lake written.
        count: trajectories.
        replace_s: as `benchmarks.pool` measures it.
    """
    found: list[FinishedTrajectory] = []
    planned = plan(list(catalog(config)), count)
    with Actor(PageExplorer()) as explorer, PeakMemory(os.getpid()) as memory, _Processors() as processors:
        roll_out_all(config, planned, lambda _: [explorer], found.extend, bar, "trajectories")
    screens = sum(len(one.steps) + 1 for one in found)
    failed = sum(one.trajectory.failure_boundary == "sandbox" for one in found)
    rows_s, commit_s = _writing(config, found)
    return Costs(
        screen_s=processors.seconds / screens,
        steps=[len(one.steps) for one in found],
        rows_s=rows_s,
        commit_s=commit_s,
        gates_s=_gates(config, found),
        failing=max(failed, FEWEST) / len(found),
        replace_s=replace_s,
        sandbox_mb=memory.peak.bytes / 1e6 / (BROWSERS * PAGES),
    )


class _Processors:
    """Watches what this process and all that it starts take of the processors, from another thread."""

    def __init__(self) -> None:
        self._taken: dict[psutil.Process, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="processors", daemon=True)

    def __enter__(self) -> "_Processors":
        self._begun = _taken_by(psutil.Process())
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """So far; of a process that has ended, until it was last seen."""
        return sum(self._taken.values()) - self._begun

    def _watch(self) -> None:
        last = False
        while not last:
            last = self._over.wait(WATCH_S)
            for process in tree_of(psutil.Process()):
                with contextlib.suppress(psutil.Error):
                    self._taken[process] = _taken_by(process)


def _taken_by(process: psutil.Process) -> float:
    taken = process.cpu_times()
    return taken.user + taken.system


def _writing(config: Config, found: list[FinishedTrajectory]) -> tuple[float, float]:
    """Seconds a trajectory, and seconds a chunk whatever it holds."""
    took: dict[int, float] = {}
    for size in (FEW, MANY):
        lake = Lake.open(config.lake.model_copy(update={"uri": f"{config.lake.uri}-{size}"}))
        times: list[float] = []
        for at in range(0, min(CHUNKS * size, len(found)) - size + 1, size):
            begun = time.perf_counter()
            write(lake, found[at : at + size])
            times.append(time.perf_counter() - begun)
        took[size] = median(times)
    rows_s = (took[MANY] - took[FEW]) / (MANY - FEW)
    return rows_s, took[FEW] - FEW * rows_s


def _gates(config: Config, found: list[FinishedTrajectory]) -> float:
    """Seconds of the gates a trajectory, as the filter asks them."""
    lake = Lake.open(config.lake)
    write(lake, found)
    gates, known = gates_of(config.filter), Known(lake, 0)  # knows the looks of its pictures, as the filter does
    begun = time.perf_counter()
    for one in found:
        verdicts = verdicts_of(gates, one.trajectory, one.steps, known.context(one.trajectory, None), utc_now())
        known.note(one.trajectory, one.steps, verdicts[-1])
    return (time.perf_counter() - begun) / len(found)
