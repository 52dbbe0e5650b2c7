"""Set up a process of this project: its environment variables, and how signals and errors end it.

Libraries read the variables when they are imported, and child processes inherit them: no telemetry, no model hub,
threads that do not spin while they wait, and Prefect's own state next to the work folder. Variables that the caller has
set are kept.

SIGTERM and Ctrl-C end a command soon, with the signal's exit status, one line, and no process left behind. Both raise
KeyboardInterrupt in the main thread, which asyncio turns into a cancellation and Prefect into a crashed run; locks and
leases are released on the way out. A thread notices a signal at once, whatever the main thread does
(`signal.set_wakeup_fd`). This thread silences the libraries' messages about an intended end. It raises a lost signal
again, since an exception in a destructor only goes to `sys.unraisablehook`, which prints nothing about it. Finally, it
ends the process itself.
"""

import contextlib
import gc
import logging
import os
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ClassVar, NoReturn

import psutil

from common import log
from common.process import home
from common.text import harmless
from schemas.failure import EXIT_ERROR, FlywheelError, of_the_disk

DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "ON",  # `models.hub.OFF`: a user's own "1" also forbids the fetch of `policy.base`
    "OMP_WAIT_POLICY": "PASSIVE",
    "PREFECT_CLIENT_MAX_RETRIES": "3",  # waits 14 s in total instead of a minute
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",  # events and log lines that cannot be sent
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",  # a task that is no `FlowTask` would start a server
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}

AGAIN_S = 5.0
"""Seconds after which a signal is raised again; a run has then finished the main part of its unwinding."""
LAST_S = 11.0
"""Seconds after which the process ends without waiting."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)
KEPT = "every finished stage and trajectory is kept; the same command continues from there"
SERVED = "every decision is kept, and the browser keeps drafts; the same command serves the lake again"
"""The message for a command that serves pages."""
SPENT_NOTHING = "nothing was begun"
"""The message for a command that only reads."""
ANEW = "the same command repeats the interrupted build"
"""The message for a command that builds."""
CLEAR = "\r\x1b[2K\x1b[?25h"
"""Clears an interrupted progress bar: empties its line and shows the cursor."""


def settle() -> None:
    """Sets the environment variables that are not set yet before large libraries are imported."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("PREFECT_HOME", str(home() / "prefect"))
    warnings.filterwarnings("ignore", message="Failed to create the Prefect home")  # made when it is needed
    log.settle()


class Interrupts:
    """Handles the signals of this process; made in the main thread."""

    kept: ClassVar[str] = KEPT
    """The message about the kept work, for a command that does not continue by itself."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The first signal that arrived."""
        self._reading, self._finishing = threading.Lock(), threading.Lock()
        self._terminal = os.dup(2)
        self._heard, self._wake = os.pipe()
        for end in (self._heard, self._wake):
            os.set_blocking(end, False)

    def listen(self) -> None:
        """Heeds signals from now on, except signals that the process was started to ignore."""
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, interrupt if number == signal.SIGTERM else signal.default_int_handler)
        sys.unraisablehook = unraisable
        threading.Thread(target=self._watch, name="interrupts", daemon=True).start()

    def finish(self) -> NoReturn:
        """Kills the remaining children of this process, prints one line, and exits with the signal's status."""
        number = self.number or signal.SIGTERM
        self._finishing.acquire()
        children = psutil.Process().children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        psutil.wait_procs(children, timeout=2)
        text = f"ended by {signal.Signals(number).name}; {self.kept}"
        text = (log.line("warning", text) if log.as_json() else f"flywheel: {text}.") + "\n"
        with contextlib.suppress(OSError):  # the reader of the terminal may be gone
            os.write(self._terminal, ((CLEAR if os.isatty(self._terminal) else "") + text).encode())
        os._exit(128 + number)

    def _watch(self) -> None:
        while self.number is None:
            select.select([self._heard], [], [])
            if not self._hear():
                os.close(self._heard)
                return
        logging.disable(logging.CRITICAL)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        time.sleep(AGAIN_S)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(LAST_S - AGAIN_S)
        self.finish()

    def _hear(self) -> bool:
        """Records a signal that has arrived; False if no signal can arrive anymore. The main thread may have recorded
        it first."""
        with self._reading, contextlib.suppress(BlockingIOError):
            heard = os.read(self._heard, 1)
            if self.number is None and heard and heard[0] in SIGNALS:
                self.number = heard[0]
            return bool(heard)
        return True

    def close(self) -> None:
        """Ignores signals from now on; ends the process if a signal arrived. Later signals have no effect."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        self._hear()
        if self.number is not None:
            self.finish()
        signal.set_wakeup_fd(-1)
        os.close(self._wake)
        os.close(self._terminal)


def unraisable(lost: "sys.UnraisableHookArgs") -> None:
    """Prints Python's message about an exception in a destructor, except for a signal, which is raised again.

    Otherwise, half of Python's line would precede this project's line if the terminal were silenced between its two
    writes.
    """
    if issubclass(lost.exc_type, Exception):  # not KeyboardInterrupt, nor Prefect's signal
        sys.__unraisablehook__(lost)


def interrupt(_: int, frame: FrameType | None) -> None:
    """Handles SIGTERM in the same way as Ctrl-C: cancels an event loop's main task, or raises."""
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)
    else:
        raise KeyboardInterrupt


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """Lets SIGTERM and Ctrl-C end the process as this module describes, while the context lasts."""
    before, hook = {number: signal.getsignal(number) for number in SIGNALS}, sys.unraisablehook
    interrupts = Interrupts()
    interrupts.listen()
    try:
        yield
    finally:
        closed = False
        while not closed:
            with contextlib.suppress(KeyboardInterrupt):  # a second signal, while signals are still heeded
                interrupts.close()
                closed = True
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook


_abandoned = threading.Event()


def abandon() -> None:
    """Makes this process end without waiting for background work."""
    _abandoned.set()


def leave(code: Any) -> NoReturn:
    """Ends this process, whose work is done with an exit status in the form for `sys.exit`."""
    ignore()
    gc.freeze()  # spares the garbage collections of the interpreter's shutdown
    if _abandoned.is_set():
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))
    sys.exit(code)


def ignore() -> None:
    """Ignores all signals and silences standard error during the interpreter's shutdown, after all work.

    DuckDB's bindings would print objects that are still alive, which helps no user.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def ended(do: Callable[[], object]) -> Any:
    """Calls `do` and prints the hint of an error that the user can fix.

    Returns:
        The exit status, in the form for `sys.exit`.
    """
    try:
        do()
    except FlywheelError as error:
        return _print_error(error)
    except SystemExit as end:
        return end.code
    except Exception as error:
        if isinstance(error, OSError) and (explanation := of_the_disk(error)):
            return _print_error(explanation)
        problem = f"internal error: please report the traceback{{}}; {Interrupts.kept}."
        if log.as_json():
            sys.stderr.write(log.line("error", problem.format(""), {"traceback": traceback.format_exc()}) + "\n")
        else:
            traceback.print_exc()
            sys.stderr.write(f"flywheel: {problem.format(' above')}\n")
        return EXIT_ERROR
    return 0


def complaint(error: FlywheelError) -> str:
    """Makes the one-line message of an error for users, or for programs with `--log-json`."""
    if log.as_json():
        fields = {"error": type(error).__name__, "hint": error.hint, "exit_code": error.exit_code}
        return log.line("error", error.problem, fields)
    return f"flywheel: {harmless(' '.join(str(error).split()))}"


def _print_error(error: FlywheelError) -> int:
    sys.stderr.write(complaint(error) + "\n")
    return error.exit_code
