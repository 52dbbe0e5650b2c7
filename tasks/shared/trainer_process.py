"""The trainer as a process of its own: started with a job, heard line by line, ended with whoever started it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from learning.job import TIED, Job
from schemas.failure import FlywheelError

_KEPT = ("loss", "samples_per_s", "seconds", "ready_s", "waited_s")


class TrainerProcess:
    """A running trainer; leaving its `with` ends it if it still runs.

    Args:
        job: what it is to train.
        folder: where the job and what it says to standard error are written.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        (folder / "job.json").write_text(job.model_dump_json())
        self._log = folder / "trainer.log"
        environ = {
            **os.environ,
            "OMP_NUM_THREADS": str(job.train.threads),
            "OMP_WAIT_POLICY": "PASSIVE",
            TIED: str(os.getpid()),
        }
        command = [sys.executable, "-m", "learning.trainer", str(folder / "job.json")]
        with self._log.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environ, stdin=subprocess.PIPE
            )

    def __enter__(self) -> "TrainerProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def listen(self, hear: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Hands on all that the trainer says until it ends; returns its last numbers.

        Raises:
            FlywheelError: it stopped with an error, or died.
        """
        numbers: dict[str, Any] = {"loss": 0.0, "samples_per_s": 0.0}
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                said = json.loads(line)
                hear(said)
                numbers |= said
        code = self._process.wait()
        if "error" in numbers:
            raise FlywheelError(str(numbers["error"]))
        if code != 0:
            tail = self._log.read_text()[-800:].strip()
            raise FlywheelError(f"The trainer died with {code}.", f"Its last words: {tail or 'none'}")
        resumed = {"resumed_at": numbers["resumed"]} if "resumed" in numbers else {}
        return {key: numbers[key] for key in _KEPT if key in numbers} | resumed | numbers["numbers"]
