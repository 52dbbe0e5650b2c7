"""Call a flow from the command line without Prefect's tracebacks for errors that the user can fix.

Prefect logs every exception with its traceback, once per task and flow that it passes through, and raises it again. The
command line prints it itself: one line for a `FlywheelError`, one traceback for anything else.
"""

import contextlib
import gc
import importlib
import logging
from collections.abc import Sequence
from typing import Any

from apps.environment import make_prefect_home
from apps.interrupts import interrupt
from schemas.failure import FlywheelError
from tasks.running.console import caller_reports
from tasks.running.progress_lines import progress_lines

TWICE = ("Encountered exception", "Finished in state", "Crash detected")
FAILED, RETRIED = "Task run failed with", " will start "
"""Prefect's messages that a task failed, and that it is retried."""


class OncePerError(logging.Filter):
    """Drops Prefect's reports of exceptions that are raised to the caller anyway; retries stay visible."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to show this record."""
        if not record.name.startswith(("prefect.flow_runs", "prefect.task_runs")):
            return True
        raised = record.exc_info[1] if record.exc_info else None
        message = record.getMessage()
        last = message.startswith(FAILED) and RETRIED not in message
        return not (last or isinstance(raised, FlywheelError) or message.startswith(TWICE))


def call(flow: str, *arguments: Any, ahead: Sequence[str] = ()) -> Any:
    """Runs a flow and returns its result. Its errors are raised, and logged nowhere else; the caller reports an early
    end.

    If the user's server is unreachable at the start or later, one line names it and the flow continues.

    Args:
        flow: its dotted path. It is imported while Prefect's temporary server starts, which takes seconds, too.
        arguments: its arguments.
        ahead: slow modules of its first stages, imported meanwhile as well. Not in a thread of their own: of two
            threads that import at once, one may get half a module.

    Raises:
        FlywheelError: Prefect's temporary server did not start, or died while it did.
    """
    module, _, name = flow.rpartition(".")
    with progress_lines(f"Starting {name.replace('_', ' ')}"):
        return _call(module, name, arguments, ahead)


def _call(module: str, name: str, arguments: Sequence[Any], ahead: Sequence[str]) -> Any:
    make_prefect_home()
    from apps.server import server_if_needed

    server = server_if_needed()
    called = getattr(importlib.import_module(module), name)
    for other in ahead if server else ():
        with contextlib.suppress(Exception):  # the stage that needs it reports the error
            importlib.import_module(other)
    gc.freeze()  # excludes the imported objects from every later garbage collection
    heed_our_own()
    once = OncePerError()
    handlers = list(logging.getLogger().handlers)  # Prefect's, which its import has set up
    for handler in handlers:
        handler.addFilter(once)
    try:
        with caller_reports():
            if server is None:
                from apps.server_outage import call_and_report

                return call_and_report(called, arguments)
            server.wait()
            return called(*arguments)
    finally:
        for handler in handlers:
            handler.removeFilter(once)


def heed_our_own() -> None:
    """Keeps our handler of SIGTERM within a flow.

    Prefect raises an exception of its own at it, for the workers that start its flows. asyncio takes that for a task's
    or a callback's failure and continues: a run with busy sandboxes would not end.
    """
    from prefect.utilities import engine

    engine._prefect_sigterm_handler = interrupt  # pyright: ignore[reportPrivateUsage]
