"""How fast trajectories are made: our pool against MiniWoB++'s own Selenium environment, side by side.

`python -m benchmarks.sandbox [--short] [--json PATH]`. Both roll out the same tasks with the same policy (uniform
random clicks below the instruction, at most ten) with the same seeds, over and over while the time lasts, and take a
screenshot at the start and after every step. Few seeds make a round, so they are drawn evenly from the short and the
long trajectories of this policy. The settings of both sides take turns within each round. The number is our best
against their best within a round: the median over rounds, and of the tasks' medians the geometric mean.

We load the page afresh for every trajectory; their default seeds the old page again, which is quicker and lets one
trajectory touch the next. So their environment is also measured with `refresh_freq=1`, like for like.
"""

import asyncio
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any

import psutil

from benchmarks.shared.report import Bar, finish, options
from environments.chromium.in_page import InPageReward
from environments.miniwob.environment import MiniwobConfig, MiniwobEnvironment
from environments.pool import SandboxPool
from schemas.action import Click
from schemas.failure import FlywheelError

TASKS = ("click-button", "enter-text", "click-checkboxes")
OURS = ((1, 1), (1, 2), (2, 2), (2, 4))
"""Browsers and pages per browser."""
SELENIUM = ((1, False), (2, False), (4, False), (2, True), (4, True))
"""Processes, and whether the page is loaded afresh for every trajectory."""
PEERS = ("selenium", "selenium, fresh")
RATES = ("trajectories_s", "steps_s")
COLUMNS = (*RATES, "cpu_ms")
MAX_STEPS = 10
REWARD = InPageReward()
SEEDS = 4
"""Different seeds of one round: few, so that the slower side comes to them all and both make trajectories as long."""
DRAWN_FROM = 64
"""Seeds whose trajectories' lengths are looked at beforehand."""
TOP = 50 / 210
"""Where the instruction ends, as a fraction of the screen."""
BAR = 8.0


@dataclass(slots=True)
class Tally:
    """What was made in how long."""

    trajectories: int = 0
    steps: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def cpu_seconds() -> float:
    """Processor time so far of this process and all below it but the workers of the peer."""
    total, waiting = 0.0, [psutil.Process()]
    workers = {worker.pid for worker in multiprocessing.active_children()}
    while waiting:
        process = waiting.pop()
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
            waiting += [child for child in process.children() if child.pid not in workers]
    return total


def clicks(seed: int) -> Iterator[tuple[float, float]]:
    """The policy of both sides: up to ten points, in fractions of the screen."""
    chance = random.Random(seed)
    for _ in range(MAX_STEPS):
        yield chance.random(), TOP + (1 - TOP) * chance.random()


def drawn_evenly(lengths: dict[int, int], rounds: int) -> list[list[int]]:
    """Each round's seeds, one from every quarter of the seeds by the length of their trajectory.

    Args:
        lengths: steps by seed.
        rounds: how many; at most a quarter of the seeds.
    """
    ordered = sorted(lengths, key=lambda seed: (lengths[seed], seed))
    size = len(ordered) // SEEDS
    quarters = [ordered[start : start + size] for start in range(0, SEEDS * size, size)]
    for number, quarter in enumerate(quarters):
        random.Random(number).shuffle(quarter)
    return [[quarter[number] for quarter in quarters] for number in range(rounds)]


def miniwob(browsers: int, pages: int) -> MiniwobEnvironment:
    """MiniWoB++ in so many browsers of so many pages each."""
    return MiniwobEnvironment("miniwob", MiniwobConfig(browsers=browsers, pages=pages))


async def roll_out_one(pool: SandboxPool, task: str, seed: int) -> int:
    """One trajectory; returns its steps."""
    async with pool.lease(miniwob(1, 1).task(task), seed) as sandbox:
        await sandbox.observe()
        for number, (x, y) in enumerate(clicks(seed), 1):
            await sandbox.perform(Click(x=x, y=y))
            await sandbox.observe()
            if (await sandbox.verify(REWARD)).done:
                return number
    return MAX_STEPS


async def lengths_of(pool: SandboxPool, task: str) -> dict[int, int]:
    """Steps of this policy's trajectories by seed."""
    seeds, found = iter(range(DRAWN_FROM)), dict[int, int]()

    async def actor() -> None:
        for seed in seeds:
            found[seed] = await roll_out_one(pool, task, seed)

    await asyncio.gather(*(actor() for _ in range(sum(pool.sizes.values()))))
    return found


async def run_ours(pool: SandboxPool, task: str, seconds: float, seeds: list[int]) -> Tally:
    """Rolls out on all of the pool's pages until the time is up; counts finished trajectories."""
    tally, turns = Tally(), cycle(seeds)
    start, cpu = time.perf_counter(), cpu_seconds()

    async def actor() -> None:
        while time.perf_counter() - start < seconds:
            steps = await roll_out_one(pool, task, next(turns))
            tally.steps += steps
            tally.trajectories += 1

    await asyncio.gather(*(actor() for _ in range(sum(pool.sizes.values()))))
    tally.seconds, tally.cpu_seconds = time.perf_counter() - start, cpu_seconds() - cpu
    return tally


def run_selenium(pipe: Connection) -> None:
    """A worker process: opens the environment of each task it is given, and rolls it out when asked."""
    import gymnasium
    import miniwob
    import numpy
    from miniwob.action import ActionTypes

    gymnasium.register_envs(miniwob)
    environment: Any = None
    while (order := pipe.recv()) is not None:
        task, seconds, seeds, fresh = order
        if seconds == 0:
            if environment is not None:
                environment.close()
            environment = gymnasium.make(f"miniwob/{task}-v1").unwrapped
            environment.reset(seed=0)
            pipe.send(Tally())
            continue
        environment.instance.refresh_freq = int(fresh)
        tally, turns = Tally(), cycle(seeds)
        start, cpu = time.perf_counter(), cpu_seconds()
        while time.perf_counter() - start < seconds:
            seed = next(turns)
            environment.reset(seed=seed)
            for x, y in clicks(seed):
                coordinates = numpy.array([x * 160, y * 210], dtype=numpy.float32)
                action = environment.create_action(ActionTypes.CLICK_COORDS, coords=coordinates)
                done = environment.step(action)[2]
                tally.steps += 1
                if done:
                    break
            tally.trajectories += 1
        tally.seconds, tally.cpu_seconds = time.perf_counter() - start, cpu_seconds() - cpu
        pipe.send(tally)
    if environment is not None:
        environment.close()


@contextmanager
def selenium_workers(processes: int) -> Iterator[list[Connection]]:
    """Worker processes of the peer."""
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(processes)]
    workers = [context.Process(target=run_selenium, args=(theirs,)) for _, theirs in pairs]
    for worker in workers:
        worker.start()
    try:
        yield [ours for ours, _ in pairs]
    finally:
        for ours, _ in pairs:
            ours.send(None)
        for worker in workers:
            worker.join(20)
            worker.kill()


async def ask(pipes: list[Connection], task: str, seconds: float, seeds: list[int], fresh: bool = False) -> Tally:
    """Lets these workers act at the same time, each beginning at another seed, and adds up what they did."""
    for number, pipe in enumerate(pipes):
        first = number * len(seeds) // len(pipes)
        pipe.send((task, seconds, seeds[first:] + seeds[:first], fresh))
    tallies = [await asyncio.to_thread(pipe.recv) for pipe in pipes]
    return Tally(
        trajectories=sum(tally.trajectories for tally in tallies),
        steps=sum(tally.steps for tally in tallies),
        seconds=max(tally.seconds for tally in tallies),
        cpu_seconds=sum(tally.cpu_seconds for tally in tallies),
    )


async def measure(
    tasks: tuple[str, ...], ours: tuple[tuple[int, int], ...], rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """All rounds of all tasks; one row per round and setting."""
    rows: list[dict[str, Any]] = []
    pools = {shape: SandboxPool([miniwob(*shape)]) for shape in ours}
    for pool in pools.values():
        await pool.start()
    with selenium_workers(max(processes for processes, _ in SELENIUM)) as pipes:
        for task in tasks:
            await ask(pipes, task, 0, [0])
            lengths = await lengths_of(next(iter(pools.values())), task)
            for pool in pools.values():
                await run_ours(pool, task, 0.1, [0])
            for number, seeds in enumerate(drawn_evenly(lengths, rounds)):
                for processes, fresh in SELENIUM:
                    tally = await ask(pipes[:processes], task, seconds, seeds, fresh)
                    side = "selenium, fresh" if fresh else "selenium"
                    rows.append(_row(task, number, side, f"{processes} processes", tally))
                for (browsers, pages), pool in pools.items():
                    tally = await run_ours(pool, task, seconds, seeds)
                    rows.append(_row(task, number, "flywheel", f"{browsers} x {pages} pages", tally))
    for pool in pools.values():
        await pool.close()
    return rows


def _row(task: str, number: int, side: str, setting: str, tally: Tally) -> dict[str, Any]:
    rates = {"trajectories_s": tally.trajectories / tally.seconds, "steps_s": tally.steps / tally.seconds}
    cpu_ms = tally.cpu_seconds * 1000 / tally.trajectories
    return {"task": task, "round": number, "side": side, "setting": setting, **rates, "cpu_ms": cpu_ms}


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over rounds, one row per task and setting."""
    summary = []
    for key in dict.fromkeys((row["task"], row["side"], row["setting"]) for row in rows):
        same = [row for row in rows if (row["task"], row["side"], row["setting"]) == key]
        medians = {column: statistics.median(row[column] for row in same) for column in COLUMNS}
        summary.append({"task": key[0], "side": key[1], "setting": key[2], **medians})
    return summary


def ratio(rows: list[dict[str, Any]], task: str, column: str, peers: tuple[str, ...]) -> float:
    """How many times better our best setting is than the best of these peers within a round, the median over rounds."""

    def best(here: list[dict[str, Any]], sides: tuple[str, ...]) -> float:
        return max(row[column] if column in RATES else 1 / row[column] for row in here if row["side"] in sides)

    rounds = [
        [row for row in rows if (row["task"], row["round"]) == (task, number)]
        for number in sorted({row["round"] for row in rows})
    ]
    return statistics.median(best(here, ("flywheel",)) / best(here, peers) for here in rounds)


def find_peer() -> None:
    """Points MiniWoB++ at the browser and driver that are installed; raises FlywheelError if one is missing."""
    driver = os.environ.get("MINIWOB_CHROMEDRIVER") or shutil.which("chromedriver")
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser = os.environ.get("MINIWOB_CHROME_BINARY") or next(filter(None, map(shutil.which, names)), None)
    if driver is None or browser is None:
        missing = "chromedriver" if driver is None else "a Chromium for it"
        raise FlywheelError(
            f"The peer, MiniWoB++'s Selenium environment, needs {missing}: there is nothing to compare with.",
            "On Debian: apt install chromium chromium-driver.",
        )
    os.environ["MINIWOB_CHROMEDRIVER"], os.environ["MINIWOB_CHROME_BINARY"] = driver, browser


def main() -> int:
    """Exit status 0 if the bar is reached, 1 if not or if the peer is missing."""
    arguments = options(__doc__ or "")
    try:
        find_peer()
        rounds, seconds = (2, 1.5) if arguments.short else (5, 4.0)
        rows = asyncio.run(measure(TASKS, OURS[1:3] if arguments.short else OURS, rounds, seconds))
    except FlywheelError as error:
        print(error, file=sys.stderr)
        return 1
    summary, bars = summarise(rows), []
    for what, peers in (("best against best", PEERS), ("a fresh page on both sides", PEERS[1:])):
        ratios = {task: {column: ratio(rows, task, column, peers) for column in COLUMNS} for task in TASKS}
        summary += [{"task": task, "side": "ratio", "setting": what, **ratios[task]} for task in TASKS]
        mean = statistics.geometric_mean(ratios[task]["trajectories_s"] for task in TASKS)
        bars.append(
            Bar(f"trajectories per second against MiniWoB++'s Selenium environment, {what}", mean, BAR, "higher")
        )
    return finish("sandbox", summary, bars, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
