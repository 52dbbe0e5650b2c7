"""Run BrowserGym's MiniWoB++ in worker processes of a Python that has it."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.sandbox.clicks import Tally
from benchmarks.sandbox.rounds import cpu_seconds
from common.process import home
from environments.chromium.browser import find_browser
from environments.miniwob.environment import html_folder
from environments.workers.build import python_in
from schemas.failure import FlywheelError

HERE = Path(__file__).parent
FOREIGN = HERE.parents[1] / "environments" / "workers" / "foreign"
SETTINGS: dict[str, dict[str, Any]] = {
    "browsergym, defaults": {},
    "browsergym": {"slow_mo": 0, "pre_observation_delay": 0},
}
"""Its own delays, and none: its defaults wait half a second before every observation, and 0.1 s at every action."""
Worker = subprocess.Popen[str]


def browsergym_python() -> Path:
    """Raises `FlywheelError` if there is none."""
    found = os.environ.get("FLYWHEEL_BROWSERGYM_PYTHON")
    python = Path(found) if found else python_in(home() / "workers" / "browsergym")
    if not python.exists():
        raise FlywheelError("The peer BrowserGym is not there.", "Run `flywheel environments add browsergym`.")
    return python


@contextmanager
def browsergym_workers(processes: int) -> Iterator[list[Worker]]:
    """Worker processes of the peer."""
    given = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(HERE), str(FOREIGN))),
        "FLYWHEEL_BROWSER": str(find_browser()),
        "MINIWOB_URL": f"{html_folder().as_uri()}/",
    }
    command = [str(browsergym_python()), str(HERE / "browsergym_arm.py")]
    with ExitStack() as folders:
        temporary = [folders.enter_context(TemporaryDirectory(prefix="flywheel-")) for _ in range(processes)]
        workers = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**given, "TMPDIR": folder}
            )
            for folder in temporary
        ]
        try:
            yield workers
        finally:
            for worker in workers:
                worker.communicate(timeout=60)


async def ask_browsergym(
    workers: list[Worker], task: str, seconds: float, seeds: list[int], settings: dict[str, Any]
) -> Tally:
    """Lets these workers act at the same time, each beginning at another seed, and adds up what they did."""
    before = sum(cpu_seconds(worker.pid) for worker in workers)
    for number, worker in enumerate(workers):
        first = number * len(seeds) // len(workers)
        order = {"task": task, "seconds": seconds, "seeds": seeds[first:] + seeds[:first], "settings": settings}
        assert worker.stdin is not None
        worker.stdin.write(json.dumps(order) + "\n")
        worker.stdin.flush()
    made = [await asyncio.to_thread(_answer, worker) for worker in workers]
    after = sum(cpu_seconds(worker.pid) for worker in workers)
    return Tally(sum(one[0] for one in made), sum(one[1] for one in made), max(one[2] for one in made), after - before)


def _answer(worker: Worker) -> list[Any]:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise FlywheelError(f"BrowserGym's worker ended with {worker.wait()}.", "What it wrote stands above.")
    return json.loads(line)
