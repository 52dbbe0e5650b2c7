"""Measure our pool's rate, the cost of a step and of a drawn frame, and whether a seed repeats its trajectory."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import cycle

from benchmarks.sandbox.clicks import Tally, clicks
from benchmarks.sandbox.rounds import cpu_seconds
from environments.chromium.in_page import InPageReward
from environments.miniwob.environment import MiniwobConfig, MiniwobEnvironment, MiniwobSandbox
from environments.pool import SandboxPool
from schemas.action import Click

REWARD = InPageReward()
DRAWN_FROM = 64
"""Seeds whose trajectories' lengths are looked at beforehand."""
FRAMES = 300
SEEDS = 60
"""Trajectories whose steps are counted."""
TOGGLE = "world.document.body.style.outline = '3px solid ' + (world.odd = !world.odd ? 'red' : 'blue')"


def miniwob(browsers: int, pages: int) -> MiniwobEnvironment:
    """MiniWoB++ in so many browsers of so many pages each."""
    return MiniwobEnvironment("miniwob", MiniwobConfig(browsers=browsers, pages=pages))


@dataclass(frozen=True, slots=True)
class Played:
    """A trajectory."""

    steps: int
    reward: float
    done: bool
    screens: tuple[bytes, ...]
    """Hashes of the pictures."""


async def play(pool: SandboxPool, task: str, seed: int) -> Played:
    """One trajectory, a picture at its start and after every step."""
    async with pool.lease(miniwob(1, 1).task(task), seed) as sandbox:
        seen = [(await sandbox.observe()).png]
        reward, done = 0.0, False
        for x, y in clicks(seed):
            await sandbox.perform(Click(x=x, y=y))
            seen.append((await sandbox.observe()).png)
            outcome = await sandbox.verify(REWARD)
            reward, done = outcome.reward, outcome.done
            if done:
                break
    return Played(len(seen) - 1, reward, done, tuple(hashlib.blake2b(png).digest() for png in seen))


async def _on_all(pool: SandboxPool, work: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Played]:
    """Plays tasks and seeds on all of the pool's pages."""
    left, found = iter(work), dict[tuple[str, int], Played]()

    async def actor() -> None:
        for task, seed in left:
            found[task, seed] = await play(pool, task, seed)

    await asyncio.gather(*(actor() for _ in range(sum(pool.sizes.values()))))
    return found


async def lengths_of(pool: SandboxPool, task: str) -> dict[int, int]:
    """Steps of this policy's trajectories by seed."""
    found = await _on_all(pool, [(task, seed) for seed in range(DRAWN_FROM)])
    return {seed: played.steps for (_, seed), played in found.items()}


async def run_ours(pool: SandboxPool, task: str, seconds: float, seeds: list[int], others: Collection[int]) -> Tally:
    """Rolls out on all of the pool's pages until the time is up; counts finished trajectories.

    Args:
        pool, task, seconds, seeds: what is played on what, for how long.
        others: processes of the peers, whose time is not ours.
    """
    tally, turns = Tally(), cycle(seeds)
    start, cpu = time.perf_counter(), cpu_seconds(without=others)

    async def actor() -> None:
        while time.perf_counter() - start < seconds:
            played = await play(pool, task, next(turns))
            tally.steps += played.steps  # read after the wait: others count meanwhile
            tally.trajectories += 1

    await asyncio.gather(*(actor() for _ in range(sum(pool.sizes.values()))))
    tally.seconds, tally.cpu_seconds = time.perf_counter() - start, cpu_seconds(without=others) - cpu
    return tally


async def costs(pool: SandboxPool, task: str, others: Collection[int]) -> tuple[float, float]:
    """Milliseconds of a processor of one page: a step (input, picture, verdict), and a frame that is drawn anew and
    encoded, which no step can do without.

    Steps are what trajectories take beyond their openings, which are made by themselves; few readings, as one takes
    milliseconds itself.
    """

    async def opened(seed: int) -> int:
        async with pool.lease(miniwob(1, 1).task(task), seed) as sandbox:
            await sandbox.observe()
        return 0

    async def stepped(seed: int) -> int:
        return (await play(pool, task, seed)).steps

    async def spent(work: Callable[[int], Awaitable[int]]) -> tuple[float, int]:
        cpu = cpu_seconds(without=others)
        steps = sum([await work(seed) for seed in range(SEEDS)])
        return cpu_seconds(without=others) - cpu, steps

    async with pool.lease(miniwob(1, 1).task(task), 0) as sandbox:
        assert isinstance(sandbox, MiniwobSandbox)
        page = sandbox._page
        await sandbox.observe()
        cpu = cpu_seconds(without=others)
        for _ in range(FRAMES):
            await page.evaluate(TOGGLE)
            await page.screenshot()
        frame = (cpu_seconds(without=others) - cpu) / FRAMES
    await spent(opened)
    opening, (whole, steps) = (await spent(opened))[0], await spent(stepped)
    return 1000 * (whole - opening) / steps, 1000 * frame


async def twice(pool: SandboxPool, tasks: Sequence[str], count: int) -> tuple[int, int, int, int]:
    """Plays so many pairs of task and seed twice: pairs, those with the same reward, end and steps, pictures that both
    have, those that are the same to the byte."""
    work = [(tasks[number % len(tasks)], 1000 + number // len(tasks)) for number in range(count)]
    first, second = await _on_all(pool, work), await _on_all(pool, work)
    alike = screens = equal = 0
    for key in work:
        one, other = first[key], second[key]
        alike += (one.steps, one.reward, one.done) == (other.steps, other.reward, other.done)
        screens += max(len(one.screens), len(other.screens))
        equal += sum(a == b for a, b in zip(one.screens, other.screens, strict=False))
    return len(work), alike, screens, equal
