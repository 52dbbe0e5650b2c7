"""What a desktop costs: starting one, acting on it with a picture after every step, its memory; and that nothing stays.

`python -m benchmarks.desktop [--short] [--json PATH]`. Desktops are leased from the pool, one after another, as a
rollout leases them. Every task's scripted solution is played for several seeds; a script acts by clicks, drags and keys
alone, and its last verdict must be 1. A step is an action, the wait until the desktop rests, a verdict and a PNG.
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.desktop.solutions import SCRIPTS, solved
from benchmarks.shared.report import Bar, finish, options
from environments.desktop.environment import DesktopConfig, DesktopEnvironment
from environments.desktop.sandbox import DesktopReward, DesktopSandbox
from environments.pool import SandboxPool
from schemas.action import Action, Click, Hotkey, Scroll, Type

LEASE_BAR_S, STEPS_BAR = 2.0, 20.0
STEP_TASK = "write-note"
STEPS: tuple[Action, ...] = (
    Type(content="one two "),
    Hotkey(key="enter"),
    Click(x=0.4, y=0.3),
    Hotkey(key="ctrl a"),
    Scroll(x=0.4, y=0.3, direction="down"),
    Click(x=0.55, y=0.4),
    Hotkey(key="end"),
)
"""Typing and clicking in an editor, each of which changes what is shown."""


def processes(root: int) -> list[psutil.Process]:
    """A desktop's processes, as this machine sees them."""
    try:
        one = psutil.Process(root)
        return [one, *one.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def memory_mb(found: Iterable[psutil.Process]) -> float:
    """What they hold together, each page shared out among those that share it."""
    total = 0
    for one in found:
        with suppress(psutil.Error):
            total += one.memory_full_info().pss
    return total / 2**20


def left_behind(pids: Iterable[int]) -> list[int]:
    """Those that still run, a second later at most."""
    until = time.monotonic() + 1.0
    pids = list(pids)
    while True:
        alive = [pid for pid in pids if runs(pid)]
        if not alive or time.monotonic() > until:
            return alive
        time.sleep(0.02)


def runs(pid: int) -> bool:
    """Whether a process is there, and not only its number, which is kept until somebody asks how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def play(environment: DesktopEnvironment, template: str, seed: int) -> dict[str, Any]:
    """One task's script on a desktop of its own."""
    begun = time.monotonic()
    async with SandboxPool([environment]) as pool, pool.lease(environment.task(template), seed) as sandbox:
        assert isinstance(sandbox, DesktopSandbox)
        await sandbox.observe()
        first_s = time.monotonic() - begun
        found = processes(sandbox.box.pid)
        held, pids = memory_mb(found), [one.pid for one in found]
        hand = await solved(sandbox, template)
        pids += [one.pid for one in processes(sandbox.box.pid)]
    return {
        "task": template,
        "seed": seed,
        "solved": hand.outcome.reaches(1),
        "steps": hand.steps,
        "first_screenshot_s": first_s,
        "memory_mb": held,  # of all processes, each page shared out among those that hold it
        "left_behind": len(left_behind(set(pids))),
    }


async def speed(environment: DesktopEnvironment, steps: int) -> dict[str, Any]:
    """Steps per second, each with a verdict and a PNG."""
    async with SandboxPool([environment]) as pool, pool.lease(environment.task(STEP_TASK), 1) as sandbox:
        taken, sizes, pictures = list[float](), list[int](), set[bytes]()
        for number in range(-len(STEPS), steps):
            clock = time.perf_counter()
            await sandbox.perform(STEPS[number % len(STEPS)])
            await sandbox.verify(DesktopReward())
            seen = await sandbox.observe()
            if number >= 0:
                taken.append(time.perf_counter() - clock)
                sizes.append(len(seen.png))
                pictures.add(seen.png)
    return {
        "steps": steps,
        "steps_per_second": len(taken) / sum(taken),
        "step_median_ms": statistics.median(taken) * 1000,
        "step_p90_ms": statistics.quantiles(taken, n=10)[-1] * 1000,
        "png_kb": statistics.median(sizes) / 1024,
        "pictures": len(pictures),
        "load": round(os.getloadavg()[0], 1),
    }


async def measure(short: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A row per script and seed, and a row per round of steps."""
    environment = DesktopEnvironment("desktop", DesktopConfig(kind="desktop", desktops=1))
    rounds = [await speed(environment, 70 if short else 350) for _ in range(3 if short else 5)]
    seeds = (1,) if short else (1, 2, 3)
    return [await play(environment, template, seed) for template in SCRIPTS for seed in seeds], rounds


def main() -> int:
    """Exit status 0 if all bars are reached."""
    arguments = options(__doc__ or "")
    plays, rounds = asyncio.run(measure(arguments.short))
    bars = [
        Bar(
            "seconds from a lease to the first screenshot, median",
            statistics.median(row["first_screenshot_s"] for row in plays),
            LEASE_BAR_S,
            "lower",
        ),
        Bar(
            "steps a second with a PNG each, quietest round",
            max(row["steps_per_second"] for row in rounds),
            STEPS_BAR,
            "higher",
        ),
        Bar("scripts that reach the reward", statistics.mean(row["solved"] for row in plays), 1.0, "higher"),
        Bar("processes left behind", sum(row["left_behind"] for row in plays), 0, "lower"),
    ]
    return finish("desktop", [*plays, *rounds], bars, arguments.json, [plays, rounds])


if __name__ == "__main__":
    sys.exit(main())
