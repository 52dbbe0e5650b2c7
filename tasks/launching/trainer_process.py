"""Run the trainer as separate processes: start it with a job, receive its messages, and end it.

The trainer writes its messages to a status folder (`learning.status_folder`) on any machine. If a start hangs or loses
a process, it is ended, and a new start resumes from the last complete checkpoint. A start that reports an error is not
repeated. The output of the trainer and its libraries goes to `trainer.print_line`.
"""

import ctypes
import gc
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from common.process import repeated
from learning.job import Job, TrainerReport
from learning.status_folder import ENDED, Heartbeat, StallTimer, StatusFolder, every
from schemas.failure import FlywheelError
from tasks.launching.launchers import LAUNCHERS, Launcher, Start
from tasks.launching.stored import Stored
from tasks.running.console import err, print_line
from tasks.running.run_status import CURRENT

POLL_S = {"local": 0.02, "torchrun": 0.2, "command": 0.2}
"""Seconds between polls of the status folder for a message."""
DRAIN_S = 5.0
"""Maximum seconds until the last message of an ended process is visible through a shared file system."""
SLOWER = 10.0
"""Multiple of the longest step so far that a step may take."""


class TrainerProcess:
    """A running trainer. The end of its `with` block ends the trainer.

    Args:
        job: the training.
        folder: folder for the job, the status folders and all output.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        _release_memory()
        self._job, self._folder, self._log = job, folder, folder / "trainer.log"
        self._log.unlink(missing_ok=True)
        shutil.rmtree(folder / "starts", ignore_errors=True)
        self._stored = Stored(job) if job.train.machines.store and job.train.launch != "local" else None
        if self._stored is None:
            (folder / "job.json").write_text(job.model_dump_json())
        self._lock, self._closed, self._count = threading.Lock(), threading.Event(), 0
        self._begin()
        self._heartbeats = ExitStack()
        self._heartbeats.enter_context(repeated(self._every_s, self._send_heartbeat, "starter"))

    def __enter__(self) -> "TrainerProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    def listen(self, on_message: Callable[[TrainerReport], None]) -> TrainerReport:
        """Pass on every message of the trainer until it ends, and return the sum of the messages.

        Raises:
            FlywheelError: the trainer stopped with an error, or hung or died more often than `train.restarts` allows.
        """
        total, restarts = TrainerReport(loss=0.0, samples_per_s=0.0), 0
        while True:
            total, problem = self._receive(total, on_message)
            if problem is None:
                if self._stored is not None:
                    self._close()
                    self._stored.fetch()
                return total.model_copy(update={"restarts": restarts}) if restarts else total
            restarts += 1
            again = restarts <= self._job.train.restarts and self._restart(problem, restarts)
            if not again:
                tail = self._log.read_text(errors="replace")[-800:].strip()
                raise FlywheelError(f"The trainer {problem}.", f"The end of its log: {tail or 'nothing'}")

    def _close(self) -> None:
        """End the training if it still runs, and stop the heartbeat."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            self._end()
        self._heartbeats.close()

    def _restart(self, problem: str, number: int) -> bool:
        """End the current start and make a new start. Return False if the training is being ended."""
        with self._lock:
            self._end()
            if self._job.train.launch != "local":  # processes on other machines end at their next heartbeat
                self._closed.wait(2 * self._every_s)
            if self._closed.is_set():
                return False
            most = self._job.train.restarts
            err().print(f"The trainer {problem}: it is started again ({number} of {most} times)", style="yellow")
            self._begin()
            return True

    def _send_heartbeat(self) -> None:
        """Send a heartbeat to the ranks, because this process may process a message for a long time."""
        self._count += 1
        with suppress(FlywheelError, OSError):
            self._board.keep(self._count)

    def _begin(self) -> None:
        name = f"flywheel-{uuid.uuid4().hex[:12]}"
        board = self._stored.board(name) if self._stored else str(self._folder / "starts" / name)
        at = self._stored.place if self._stored else str(self._folder / "job.json")
        train = self._job.train
        self._board = StatusFolder(board)
        self._watch, self._every_s, self._next = Watch(train.hung_s), every(train.hung_s), 0.0
        self._launcher: Launcher = LAUNCHERS[train.launch](Start(self._job, at, board, name, self._log))
        self._launcher.begin()
        self._send_heartbeat()

    def _end(self) -> None:
        with suppress(FlywheelError, OSError):  # if the store is unreachable, the ranks notice the missing heartbeat
            self._board.end()
        self._launcher.end()

    def _receive(
        self, total: TrainerReport, on_message: Callable[[TrainerReport], None]
    ) -> tuple[TrainerReport, str | None]:
        """Return the sum of a start's messages, and the problem that ended the start, if any.

        Raises:
            FlywheelError: the trainer reported an error.
        """
        number, gone, slack_s = 1, None, 0.0 if self._job.train.launch == "local" else DRAIN_S
        while True:
            while (fields := self._board.message(number)) is not None:
                message = TrainerReport.model_validate(fields)
                self._notify(message, on_message)
                total, number = total.then(message), number + 1
            if total.error:
                raise FlywheelError(total.error)
            if total.checkpoint is not None:
                self._finish()
                return total, None
            if gone is not None and gone.idle_s > slack_s:
                self._complain()
                status = self._launcher.ended()
                return total, f"died with {status}" if status != "0" else "ended and made nothing"
            if gone is None and self._launcher.ended() is not None:
                gone = StallTimer(DRAIN_S)
            if gone is not None:
                gone.look(number)
            elif (problem := self._check_heartbeats()) is not None:
                self._complain()
                return total, f"hangs: {problem}"
            time.sleep(POLL_S[self._job.train.launch])

    def _check_heartbeats(self) -> str | None:
        """Check the heartbeats of the ranks if a check is due, and return the problem, if any."""
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + self._every_s
        return self._watch.look(self._board.beats())

    def _complain(self) -> None:
        if complaints := self._board.complaints():
            raise FlywheelError("; ".join(complaints))

    def _finish(self) -> None:
        """Wait briefly for the processes, which are about to end."""
        until = time.monotonic() + DRAIN_S
        while self._launcher.ended() is None and time.monotonic() < until:
            time.sleep(POLL_S["local"])

    @staticmethod
    def _notify(message: TrainerReport, on_message: Callable[[TrainerReport], None]) -> None:
        on_message(message)
        if message.step is not None:
            CURRENT.trained(message.step, message.steps, {"loss": message.loss, **message.measures})
        if message.waiting:
            print_line(message.waiting)
        if message.gpus:
            found = ", ".join(f"{host} ({count} GPUs)" for host, count in message.gpus.items())
            print_line(f"{message.processes} processes train on {message.machines} machines: {found}")
        if message.damaged is not None:
            aside = f"is damaged and now at {message.aside}: {message.problem}"
            err().print(f"The checkpoint of step {message.damaged} {aside}", style="yellow")
        if message.warning:
            err().print(message.warning, style="yellow")


def _release_memory() -> None:
    """Return unused memory to the system. The trainer needs this memory while this process waits."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):  # only glibc has this function
        ctypes.CDLL(None).malloc_trim(0)


class Watch:
    """Checks the heartbeats of one start.

    Args:
        hung_s: `train.hung_s`.
    """

    def __init__(self, hung_s: float) -> None:
        self._hung_s, self._longest_look = hung_s, 2 * every(hung_s)
        self._heard: dict[int, StallTimer] = {}
        self._steps = StallTimer(self._longest_look)
        self._longest_s = 0.0
        self._stepping = False

    def look(self, beats: Mapping[int, Heartbeat]) -> str | None:
        """Return the problem in a sentence, or None.

        A rank without heartbeats has stopped or lost its machine. If all ranks send heartbeats and no step ends, the
        ranks are deadlocked. Work outside of steps, such as reading or writing a model, has no time limit.
        """
        there = {rank: beat for rank, beat in beats.items() if beat.doing != ENDED}
        self._heard = {rank: self._heard.get(rank, StallTimer(self._longest_look)) for rank in there}
        for rank, heard in self._heard.items():
            heard.look(there[rank].count)
        silent = max(there, key=lambda rank: self._heard[rank].idle_s, default=None)
        if silent is not None and (idle_s := self._heard[silent].idle_s) > self._hung_s:
            return f"{_named(silent, there)} was not heard of for {idle_s:.0f} s"
        return self._at_a_step(there)

    def _at_a_step(self, there: Mapping[int, Heartbeat]) -> str | None:
        stepping = any(not beat.doing for beat in there.values())
        stood_s = self._steps.look((stepping, max((beat.step for beat in there.values()), default=0)))
        if stepping and self._stepping:
            self._longest_s = max(self._longest_s, stood_s)
        self._stepping = stepping
        idle_s = self._steps.idle_s
        if not stepping or idle_s <= max(self._hung_s, SLOWER * self._longest_s):
            return None
        last = min(there, key=lambda rank: there[rank].step)
        return (
            f"no step has ended for {idle_s:.0f} s, and the longest took {self._longest_s:.1f} s; "
            f"{_named(last, there)} has come to step {there[last].step}"
        )


def _named(rank: int, beats: Mapping[int, Heartbeat]) -> str:
    beat = beats[rank]
    return f"rank {rank} (process {beat.process} on {beat.host})"
