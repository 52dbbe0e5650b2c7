"""Run the arms of a benchmark as processes of their own within a budget of time, and make rows of their numbers."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.gpu._device import Row
from benchmarks.trl.running import environment

WARM = 2
"""First steps that do not count: they compile, load kernels and allocate memory."""
FULL = "out of memory"
MEASURED = "measured"
FAILED = "failed"


class Budget:
    """Seconds of a command that are left.

    Args:
        seconds: how long the command may take.
        clock: returns seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._end = clock, clock() + seconds

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self._end - self._clock()

    def limit(self, least: float, later: float) -> float | None:
        """Return the seconds that an arm may take; None if it does not fit.

        Args:
            least: seconds with which the arm makes its first counted step.
            later: seconds to keep for the arms after it, as far as this one leaves them.
        """
        return None if self.left < least else max(least, self.left - later)


@dataclass(frozen=True, slots=True)
class Arm:
    """One worker of a comparison."""

    part: str
    name: str
    """Name in the table, which begins with its side: `ours`, `trl` or `generate`."""
    setting: str
    command: Sequence[str]
    device: str
    least: float
    """Seconds that the worker needs on an H200 until its first counted step."""
    samples: int
    """Samples of a step."""
    missing: str = ""
    """Why it cannot run here; empty if it can."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of an arm."""

    state: str
    """`measured`, `out of memory`, or why the arm has no number."""
    numbers: dict[str, Any]
    """The worker's last numbers; empty if it made no step."""


def run_arms(arms: Sequence[Arm], budget: Budget) -> list[Attempt]:
    """Run the arms in order; an arm that does not fit into the rest of the budget is not run."""
    found = list[Attempt]()
    for at, arm in enumerate(arms):
        if arm.missing:
            found.append(Attempt(f"not run: {arm.missing}", {}))
            continue
        limit = budget.limit(arm.least, sum(one.least for one in arms[at + 1 :]))
        if limit is None:
            state = f"not run: needs {arm.least:.0f} s, {max(0.0, budget.left):.0f} s were left"
            found.append(Attempt(state, {}))
            continue
        print(
            f"{arm.part}: {arm.name} ({arm.setting or 'defaults'}; at most {limit:.0f} s)", file=sys.stderr, flush=True
        )
        found.append(attempt(arm, limit))
    return found


def attempt(arm: Arm, seconds: float) -> Attempt:
    """Run one arm, and end it after so many seconds; the steps that it made until then count."""
    try:
        done = subprocess.run(arm.command, env=environment(arm.device), capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        written = error.stdout or b""
        numbers = _numbers(written.decode() if isinstance(written, bytes) else written)
        steps = len(numbers.get("steps s", ()))
        enough = steps > numbers.get("warm", WARM)
        return Attempt(MEASURED if enough else f"ended after {seconds:.0f} s and {steps} steps", numbers)
    if done.returncode == 0:
        return Attempt(MEASURED, _numbers(done.stdout))
    if "OutOfMemoryError" in done.stderr or "of memory lack" in done.stderr:
        return Attempt(FULL, {})
    print(done.stderr[-3000:], file=sys.stderr)
    return Attempt(f"{FAILED}: {(done.stderr.strip().splitlines() or ['no message'])[-1][:80]}", {})


def _numbers(written: str) -> dict[str, Any]:
    lines = [line for line in written.splitlines() if line.startswith("{") and line.endswith("}")]
    return json.loads(lines[-1]) if lines else {}


def row_of(arm: Arm, tried: Attempt, peak: float | None, operations: Sequence[float], apart: Sequence[float]) -> Row:
    """Make a row: medians of the steps from the third on, with the minimum and the maximum.

    Args:
        arm: the arm.
        tried: its numbers.
        peak: operations per second of the device's data sheet; None if unknown.
        operations: what each step needs, as `benchmarks.trl.ours.needed` counts.
        apart: the same if samples share nothing.
    """
    numbers, measured = tried.numbers, tried.state == MEASURED
    seconds, first = numbers.get("steps s", []), numbers.get("warm", WARM)
    counted, loss = seconds[first:] if measured else [], numbers.get("first loss", math.nan)

    def rate(one: float) -> float | None:
        return arm.samples / one if counted else None

    def share(counts: Sequence[float]) -> float | None:
        pairs = list(zip(counts[first:], counted, strict=False))
        return median(count / one for count, one in pairs) / peak if peak and pairs else None

    return {
        "part": arm.part,
        "arm": arm.name,
        "state": tried.state,
        "samples/s": rate(median(counted or [0.0])),
        "min": rate(max(counted, default=0.0)),
        "max": rate(min(counted, default=0.0)),
        "MFU": share(operations),
        "MFU apart": share(apart),
        "waiting": sum(numbers["waits s"][first:]) / sum(counted) if counted else None,
        "start s": numbers.get("start s"),
        "warm-up s": sum(seconds[:first]) if measured else None,
        "steps": len(counted),
        "pieces": numbers.get("pieces"),
        "peak GiB": numbers["peak MiB"] / 1024 if numbers else None,
        "free": numbers.get("free"),
        "tokens": median(numbers["tokens"][first:]) if counted and "tokens" in numbers else None,
        "first loss": None if math.isnan(loss) else loss,
        "setting": [arm.setting],
        "step_s": list(seconds),
        "answering_s": numbers.get("answering s", []),
        "operations": list(operations),
    }
