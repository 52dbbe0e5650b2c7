"""Measure the time that OpenEnv's protocol adds to a step: our client and server, and the sandbox in process.

`python -m benchmarks.wire [--short] [--json PATH]`. The server runs in a process of its own, as `flywheel
serve-sandboxes` starts it. Its sandboxes return one fixed picture and do nothing, so the protocol alone is measured: an
action there, a screenshot back and read. There is a small screen (MiniWoB++'s) and a large one whose PNG is as big as
those of a real desktop. The number is the median step over the protocol, less the median step in process, in the
quietest round, because other work on the machine only adds to it.
"""

import asyncio
import io
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import psutil
from PIL import Image, ImageDraw

from benchmarks.harness import Bar, finish, options
from environments.environment import Environment
from environments.host import Host, NoHost
from environments.openenv.environment import OpenEnvConfig, OpenEnvEnvironment
from environments.openenv.sandbox import OpenEnvReward
from environments.pool import SandboxPool
from environments.sandbox import Sandbox
from environments.verifier import Verifier
from schemas.action import Action, Click
from schemas.config.sections import EnvironmentConfig
from schemas.observation import Observation, Outcome
from schemas.tables.task import GuiTask, TaskEntry

SIZES = {"small": (160, 210), "large": (1920, 1080)}
BARS = {"small": 1.0, "large": 5.0}
"""Milliseconds that a step may cost more."""
STEPS = 1_000_000


@cache
def picture(size: str) -> bytes:
    """A PNG of that size: text and boxes, with a photograph's noise in a part of the large one (about 370 KB)."""
    width, height = SIZES[size]
    chance, image = random.Random(size), Image.new("RGB", SIZES[size], "white")
    pen = ImageDraw.Draw(image)
    for _ in range(width * height // 7000):
        x, y = chance.randrange(width), chance.randrange(height)
        pen.text((x, y), str(chance.random())[:12], fill=(chance.randrange(200), 0, 90))
    if size == "large":
        image.paste(Image.frombytes("RGB", (200, 180), chance.randbytes(200 * 180 * 3)), (800, 400))
    stream = io.BytesIO()
    image.save(stream, "png")
    return stream.getvalue()


class PictureSandbox(Sandbox):
    """Shows one picture whatever is done."""

    async def _start(self, task: GuiTask, seed: int) -> None:
        self._seen = Observation(picture(task.template), *SIZES[task.template], task.instruction)

    async def _observe(self, elements: bool) -> Observation:
        return self._seen

    async def _perform(self, action: Action) -> None:
        return

    async def _stop(self) -> None:
        return


class Nothing(Verifier):
    """Never done."""

    each_step = True

    async def outcome(self, sandbox: PictureSandbox) -> Outcome:
        """0."""
        return Outcome(done=False, reward=0.0)


class Pictures(Environment[EnvironmentConfig]):
    """A task per size."""

    verifier = "benchmarks.wire:Nothing"

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """By size."""
        return {size: TaskEntry(instruction="Look.", max_steps=STEPS) for size in SIZES}

    @property
    def sandboxes(self) -> int:
        """Two."""
        return 2

    def host(self) -> Host:
        """None is needed."""
        return NoHost(lambda: PictureSandbox(self.config))


@contextmanager
def server() -> Iterator[tuple[str, psutil.Process]]:
    """The address of a server of these pictures, and its process."""
    kind = json.dumps({"pictures": {"kind": "benchmarks.wire:Pictures"}})
    command = [sys.executable, "-m", "apps.cli", "serve-sandboxes", "--port", "0", "--tasks", ",".join(SIZES)]
    process = subprocess.Popen(
        [*command, f"environments={kind}"], stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"}
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


async def steps_ms(environment: Environment[Any], size: str, verifier: Verifier, steps: int) -> list[float]:
    """How long each of so many steps took, in one lease, after as many tenths for warmth."""
    taken: list[float] = []
    async with SandboxPool([environment]) as pool, pool.lease(environment.task(size), 1) as sandbox:
        for number in range(-(steps // 10), steps):
            clock = time.perf_counter()
            await sandbox.perform(Click(x=0.5, y=0.5))
            await sandbox.verify(verifier)
            await sandbox.observe()
            if number >= 0:
                taken.append((time.perf_counter() - clock) * 1000)
    return taken


def cpu_ms(process: psutil.Process) -> float:
    """Processor time of a process so far."""
    times = process.cpu_times()
    return (times.user + times.system) * 1000


async def measure(url: str, process: psutil.Process, rounds: int, steps: int) -> list[dict[str, Any]]:
    """A row per round and size."""
    direct = Pictures("pictures", EnvironmentConfig(kind="benchmarks.wire:Pictures"))
    tasks = {size: {"instruction": "", "reset": {"task_id": f"pictures/{size}"}} for size in SIZES}
    section = OpenEnvConfig.model_validate({"kind": "openenv", "url": url, "tasks": tasks})
    wired, here, rows = OpenEnvEnvironment("wired", section), psutil.Process(), list[dict[str, Any]]()
    for number in range(rounds):
        for size in SIZES:
            without = await steps_ms(direct, size, Nothing(), steps)
            ours, theirs = cpu_ms(here), cpu_ms(process)
            with_wire = await steps_ms(wired, size, OpenEnvReward(), steps)
            spent = {"client_cpu_ms": cpu_ms(here) - ours, "server_cpu_ms": cpu_ms(process) - theirs}
            rows.append(
                {
                    "round": number,
                    "screen": "{} x {}".format(*SIZES[size]),
                    "size": size,
                    "png_bytes": len(picture(size)),
                    "in_process_ms": statistics.median(without),
                    "wire_ms": statistics.median(with_wire),
                    "wire_p90_ms": statistics.quantiles(with_wire, n=10)[-1],
                    "added_ms": statistics.median(with_wire) - statistics.median(without),
                    **{name: value / (steps * 1.1) for name, value in spent.items()},
                }
            )
    return rows


def main() -> int:
    """Exit status 0 if both bars are reached."""
    arguments = options(__doc__ or "")
    rounds, steps = (3, 100) if arguments.short else (5, 500)
    with server() as (url, process):
        rows = asyncio.run(measure(url, process, rounds, steps))
    bars = [
        Bar(
            "milliseconds that the wire adds to a step at {} x {}".format(*SIZES[size]),
            min(row["added_ms"] for row in rows if row["size"] == size),
            BARS[size],
            "lower",
        )
        for size in SIZES
    ]
    return finish("wire", rows, bars, arguments)


if __name__ == "__main__":
    sys.exit(main())
