"""Calls a flow from the command line without Prefect's tracebacks for errors that a person can mend.

Prefect logs every exception with its traceback, once per task and flow that it passes through, and raises it again.
The command line shows it itself: one line for a `FlywheelError`, one traceback for anything else.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from apps.environment import make_prefect_home
from apps.leash import leash
from schemas.failure import FlywheelError

Result = TypeVar("Result")
NO_SERVER = "ephemeral Prefect API server"
"""In Prefect's message where its temporary server does not answer in time."""


class OncePerError(logging.Filter):
    """Drops Prefect's reports of exceptions that are raised to the caller anyway; retries stay visible."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to show this record."""
        if not record.name.startswith(("prefect.flow_runs", "prefect.task_runs")):
            return True
        said = record.getMessage()
        raised = record.exc_info[1] if record.exc_info else None
        return not (
            isinstance(raised, FlywheelError) or said.startswith(("Encountered exception", "Finished in state"))
        )


def call(flow: Callable[[], Result]) -> Result:
    """What the flow returns; what it raises is raised and logged nowhere else.

    Raises:
        FlywheelError: Prefect's temporary server did not start, or died while it did.
    """
    make_prefect_home()
    import prefect  # noqa: F401  sets up the logging that is filtered here

    once = OncePerError()
    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(once)
    try:
        with leash():
            return flow()
    except RuntimeError as error:
        if NO_SERVER not in str(error):
            raise
        raise FlywheelError(
            f"Prefect's temporary server did not start: {error}",
            "Run the same command again, nothing is lost; or set PREFECT_API_URL to a server of your own.",
        ) from error
    finally:
        for handler in handlers:
            handler.removeFilter(once)
