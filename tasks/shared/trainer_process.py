"""The trainer as a process of its own: started with a job, read message by message, ended with whoever started it.

Its messages come through a pipe of their own. What it or a library prints goes to `trainer.log`, whatever it is.
"""

import contextlib
import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import psutil
import pyarrow as pa

from learning.job import MESSAGES, PARENT, Job, Message
from schemas.failure import FlywheelError
from tasks.running.console import err, say
from tasks.running.now import MOMENT


class TrainerProcess:
    """A running trainer; leaving its `with` ends it if it still runs.

    Args:
        job: what it is to train.
        folder: where the job and all that it prints are written.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        _hand_back()
        (folder / "job.json").write_text(job.model_dump_json())
        self._log = folder / "trainer.log"
        environ = {
            **os.environ,
            "OMP_NUM_THREADS": str(job.train.threads),
            "OMP_WAIT_POLICY": "PASSIVE",
            PARENT: str(os.getpid()),
        }
        command = [sys.executable, "-m", "learning.trainer", str(folder / "job.json")]
        source, sink = os.pipe()
        self._messages = os.fdopen(source)
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**environ, MESSAGES: str(sink)},
                pass_fds=(sink,),
                start_new_session=True,
            )
        os.close(sink)

    def __enter__(self) -> "TrainerProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            _kill(psutil.Process(self._process.pid))
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._messages.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def listen(self, on_message: Callable[[Message], None]) -> Message:
        """Hands on every message of the trainer until it ends; returns their sum.

        Raises:
            FlywheelError: it stopped with an error, or died.
        """
        total = Message(loss=0.0, samples_per_s=0.0)
        for line in self._messages:
            if not line.endswith("\n"):
                break  # it was killed in the middle of a message
            message = Message.model_validate(json.loads(line))
            on_message(message)
            if message.step is not None:
                MOMENT.trained(message.step, message.steps, {"loss": message.loss, **message.measures})
            if message.waiting:
                say(message.waiting)
            if message.damaged is not None:
                err().print(_set_aside(message), style="yellow")
            if message.warning:
                err().print(message.warning, style="yellow")
            total = total.then(message)
        code = self._process.wait()
        if total.error:
            raise FlywheelError(total.error)
        if code != 0:
            tail = self._log.read_text(errors="replace")[-800:].strip()
            raise FlywheelError(f"The trainer died with {code}.", f"The end of its log: {tail or 'nothing'}")
        return total


def _set_aside(message: Message) -> str:
    return f"The checkpoint of step {message.damaged} is damaged and now at {message.aside}: {message.problem}"


def _kill(process: psutil.Process) -> None:
    """Kills a process and all that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        started = process.children(recursive=True)
        for one in (process, *started):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(started, timeout=2)


def _hand_back() -> None:
    """Gives the system what reading the data left unused, since the trainer needs it and this process only waits."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)
