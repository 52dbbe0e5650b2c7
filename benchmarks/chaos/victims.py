"""Run `flywheel run` as a process of its own, and kill parts of it at random."""

import os
import random
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from common.supervisor import __file__ as SUPERVISOR
from schemas.failure import FlywheelError

MARK = "FLYWHEEL_CHAOS"
"""A variable that every process of a wheel inherits, whatever session or group it is in."""
FLOW = "flow"


class Wheel:
    """`flywheel run` for a config in a folder, which also takes its work folder and its log.

    Args:
        config: the config's file.
        iterations: how many to turn.
        environ: variables beside those of this process.
    """

    def __init__(self, config: Path, iterations: int, **environ: str) -> None:
        self._mark = uuid.uuid4().hex
        self.log = config.with_name("wheel.log")
        variables = {**os.environ, "FLYWHEEL_HOME": str(config.parent / "home"), MARK: self._mark, **environ}
        words = [sys.executable, "-m", "apps.cli", "run", "--iterations", str(iterations), "--config", str(config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, env=variables, stdout=log, stderr=log, start_new_session=True)

    def __enter__(self) -> "Wheel":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def running(self) -> bool:
        """Whether the command has not ended."""
        return self.process.poll() is None

    def parts(self) -> dict[str, list[psutil.Process]]:
        """Its processes by what they do."""
        found: dict[str, list[psutil.Process]] = {}
        if self.running:
            first = psutil.Process(self.process.pid)
            for one in (first, *first.children(recursive=True)):
                with suppress(psutil.Error):
                    found.setdefault(FLOW if one == first else _kind(one), []).append(one)
        return found

    def kill_one(self, dice: random.Random, *kinds: str) -> str | None:
        """Kills one process outright: of a kind chosen by chance first, so that one with many processes is not hit more
        often; says which kind it was, None if there is none."""
        parts = {kind: some for kind, some in self.parts().items() if not kinds or kind in kinds}
        if not parts:
            return None
        kind = dice.choice(sorted(parts))
        with suppress(psutil.Error):
            dice.choice(parts[kind]).kill()
        return kind

    def kill(self) -> None:
        """Ends the command outright, and with it whatever it started."""
        self.process.kill()
        self.process.wait()

    def left_after(self, seconds: float) -> list[str]:
        """Commands of its processes that are still there after so long, none as soon as there are none."""
        until = time.monotonic() + seconds
        while (found := self._left()) and time.monotonic() < until:
            time.sleep(0.2)
        return found

    def _left(self) -> list[str]:
        found: list[str] = []
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                if one.environ().get(MARK) == self._mark and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(one.cmdline())[:200])
        return found

    def finish(self, seconds: float) -> None:
        """Waits for a good end; raises FlywheelError with the end of the log for any other."""
        with self:
            try:
                code: Any = self.process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                code = f"nothing within {seconds:.0f} s"
        if code:
            raise FlywheelError(f"The wheel ended with {code}: {self.log.read_text(errors='replace')[-3000:]}")


def _kind(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    if SUPERVISOR in words:
        return "supervisor"
    if "learning.trainer" in words:
        above = process.parent()
        return "rank" if above and _kind(above) in ("trainer", "rank") else "trainer"
    return "browser" if "headless" in words else "server" if "uvicorn" in words else "other"
