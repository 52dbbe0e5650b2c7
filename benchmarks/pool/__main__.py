"""What the pool loses while its browsers are killed at random, and how soon a dead one is replaced.

`python -m benchmarks.pool [--short] [--json PATH]`. The explorer rolls out 10,000 MiniWoB++ trajectories (300), while a
browser chosen at random is killed every 20 seconds (3), with a warm spare. Each trajectory must stand in the end, with
no failure; those that stand at their first attempt must have ended as where nothing is killed (the first 1,000). Then a
lease whose browser has just died is timed to its first screenshot, with a spare and without.
"""

import asyncio
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.shared.report import Bar, finish, options
from environments.miniwob.environment import MiniwobConfig, MiniwobEnvironment
from environments.pool import SandboxPool
from models.explorer import PageExplorer
from rollout.actor import Actor
from rollout.runner import roll_out_all
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import Config, config_of
from schemas.tables.task import GuiTask
from tasks.running.console import bar
from tasks.shared.suite import catalog

TASKS = ("click-test", "click-button", "enter-text", "click-dialog")
BROWSERS, PAGES = 2, 4
UNDISTURBED = 1000
"""Trajectories that are rolled out a second time, with nothing killed."""
DEATHS = 12
"""Browsers killed for the time to a new one."""
LEFT_S = 5.0
"""How long the killed browsers' processes may take to end."""
GROWTH = 1.1
"""Memory of the second half of the run by that of the first."""


@dataclass(slots=True)
class Killer:
    """Kills a browser of this process every so many seconds, and reads how much memory it and its browsers hold."""

    every_s: float
    deaths: int = 0
    memory: list[float] = field(default_factory=list[float])
    """MB, once a second."""

    def run(self, over: threading.Event) -> None:
        """Until the event is set."""
        dice, next_at = random.Random(0), time.monotonic() + self.every_s
        while not over.wait(1.0):
            self.memory.append(_resident_mb())
            if time.monotonic() >= next_at and (found := browsers()):
                dice.choice(found).kill()
                self.deaths += 1
                next_at += self.every_s

    @property
    def growth(self) -> float:
        """The median memory of the last quarter by that of the second; the first warms up."""
        quarter = len(self.memory) // 4
        return statistics.median(self.memory[-quarter:]) / statistics.median(self.memory[quarter : 2 * quarter])


def browsers() -> list[psutil.Process]:
    """The main processes of this process's browsers."""
    return [one for one in psutil.Process().children() if "headless" in one.name()]


def _resident_mb() -> float:
    """Of this process and its browsers."""
    total = 0
    for one in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            total += one.memory_info().rss
        except psutil.Error:
            continue
    return total / 1e6


@contextmanager
def _killing(every_s: float | None) -> Iterator[Killer]:
    killer, over = Killer(every_s or 0.0), threading.Event()
    thread = threading.Thread(target=killer.run, args=(over,), daemon=True)
    if every_s:
        thread.start()
    try:
        yield killer
    finally:
        over.set()
        if every_s:
            thread.join()


def rolled_out(config: Config, planned: list[PlannedTrajectory]) -> dict[str, FinishedTrajectory]:
    """Those that stand, by the first attempt's identity."""
    found: list[FinishedTrajectory] = []
    with Actor(PageExplorer()) as explorer:
        roll_out_all(config, planned, lambda _: [explorer], found.extend, bar, "trajectories")
    first = {
        (one.task.task_id, one.seed): one.trajectory_id for one in planned
    }  # a retry has another identity, and the same task and seed
    return {first[one.trajectory.task_id, one.trajectory.seed]: one for one in found}


def outcome(one: FinishedTrajectory) -> tuple[Any, ...]:
    """How a trajectory ended."""
    row = one.trajectory
    return row.n_steps, row.reward, row.success, row.termination, [step.action for step in one.steps]


def plan(tasks: list[GuiTask], count: int) -> list[PlannedTrajectory]:
    """So many trajectories over these tasks."""
    version = PageExplorer.version
    return [
        PlannedTrajectory("pool", "pool", 0, tasks[number % len(tasks)], number, "explorer", version)
        for number in range(count)
    ]


def stress(config: Config, count: int, every_s: float) -> tuple[dict[str, Any], list[Bar]]:
    """A run in which browsers are killed, against one in which none is."""
    planned = plan(list(catalog(config)), count)
    begun = time.monotonic()
    with _killing(every_s) as killer:
        found = rolled_out(config, planned)
    wall_s = time.monotonic() - begun
    lost = sum(one.trajectory_id not in found for one in planned)
    failed = sum(one.trajectory.failure_boundary is not None for one in found.values())
    again = sum(one.trajectory.attempt > 0 for one in found.values())
    calm = rolled_out(config, planned[:UNDISTURBED])
    other = sum(
        outcome(found[name]) != outcome(one)
        for name, one in calm.items()
        if name in found and found[name].trajectory.attempt == 0
    )
    left = _left()
    row = {
        "trajectories": len(found), "killed": killer.deaths, "tried again": again, "lost": lost, "failed": failed,
        "ended otherwise": other, "trajectories_s": len(found) / wall_s, "memory growth": killer.growth,
        "processes left": left,
    }  # fmt: skip
    return row, [
        Bar("trajectories lost", lost, 0, "lower"),
        Bar("trajectories that ended in a failure", failed, 0, "lower"),
        Bar("trajectories that ended otherwise than undisturbed", other, 0, "lower"),
        Bar("browsers killed", killer.deaths, 3, "higher"),
        Bar("memory, last quarter by second", killer.growth, GROWTH, "lower"),
        Bar("processes left behind", left, 0, "lower"),
    ]


def _left() -> int:
    """Children of this process that are left, zombies not counted."""
    deadline, alive = time.monotonic() + LEFT_S, list[psutil.Process]()
    while time.monotonic() < deadline:
        alive = [one for one in psutil.Process().children(recursive=True) if "headless" in _name(one)]
        if not alive:
            return 0
        time.sleep(0.1)
    return len(alive)


def _name(process: psutil.Process) -> str:
    try:
        return process.name() if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.Error:
        return ""


async def replaced(spares: int) -> float:
    """Median seconds from a browser's death to the first screenshot of the next lease."""
    environment = MiniwobEnvironment("miniwob", MiniwobConfig(kind="miniwob", browsers=1, pages=1, spares=spares))
    task, took = environment.task("click-test"), []
    async with SandboxPool([environment]) as pool:
        for seed in range(DEATHS):
            async with pool.lease(task, seed) as sandbox:
                await sandbox.observe()
            await asyncio.sleep(3.0)  # the spare that was begun behind the last death is warm
            for one in browsers()[:1]:
                one.kill()
                while _name(one):  # the event loop reaps it
                    await asyncio.sleep(0.005)
            begun = time.monotonic()
            async with pool.lease(task, seed) as sandbox:
                await sandbox.observe()
            took.append(time.monotonic() - begun)
    return statistics.median(took)


def main() -> int:
    """Both parts."""
    args = options(__doc__ or "")
    count, every_s = (300, 3.0) if args.short else (10_000, 20.0)
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(
            {
                "name": "pool",
                "lake": {"uri": str(Path(folder) / "lake")},
                "environments": {"miniwob": {"browsers": BROWSERS, "pages": PAGES, "spares": 1}},
                "suite": {"tasks": TASKS},
            }
        )
        row, bars = stress(config, count, every_s)
    warm, cold = (asyncio.run(replaced(spares)) for spares in (1, 0))
    rows = [{"what": "killed", **row}, {"what": "replaced", "warm_s": warm, "cold_s": cold}]
    bars.append(Bar("a dead browser replaced from a warm spare, s", warm, 1.0, "lower"))
    return finish("pool", rows, bars, args.json, tables=[rows[:1], rows[1:]])


if __name__ == "__main__":
    raise SystemExit(main())
