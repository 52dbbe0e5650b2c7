"""Run MiniWoB++'s own environment, which drives a browser by Selenium, in worker processes."""

import asyncio
import multiprocessing
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.sandbox.clicks import Tally, clicks
from benchmarks.sandbox.rounds import cpu_seconds
from schemas.failure import FlywheelError

SETTINGS = ((1, False), (2, False), (4, False), (2, True), (4, True))
"""Processes, and whether the page is loaded afresh for every trajectory."""


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
def selenium_workers(processes: int) -> Iterator[tuple[list[Connection], list[int]]]:
    """Pipes to worker processes of the peer, and their ids."""
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(processes)]
    workers = [context.Process(target=run_selenium, args=(theirs,)) for _, theirs in pairs]
    for worker in workers:
        worker.start()
    try:
        yield [ours for ours, _ in pairs], [worker.pid for worker in workers if worker.pid is not None]
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
