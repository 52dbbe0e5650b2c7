"""A flow that tells a server of the user's own how it goes, and is no worse off where that goes away meanwhile."""

import copy
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import httpx
from prefect import Flow, State
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from apps.interrupts import abandon
from tasks.running.answering import is_there
from tasks.running.console import err

BACKGROUND = ("prefect._internal.concurrency", "EventsWorker", "APILogWorker", "prefect.events.clients")
"""Loggers of what Prefect sends to a server in the background."""
END_RETRIES = 2
"""Of each request with which Prefect tells how a flow ended; six seconds of waiting in all."""


def call_and_report(called: Any, arguments: Sequence[Any]) -> Any:
    """What a flow returns, also where the configured server went away meanwhile; raises what it raises.

    Args:
        called: the flow.
        arguments: its arguments.

    Raises:
        httpx.HTTPError: the server refused the flow, or went away before it began.
    """
    if not isinstance(called, Flow):
        return called(*arguments)
    kept, flow = _FlowOutcome(called.fn), copy.copy(called)

    @wraps(called.fn)
    def work(*args: Any, **kwargs: Any) -> Any:
        return kept.work(*args, **kwargs)

    flow.fn = work
    with until_away(PREFECT_API_URL.value() or "") as away:
        try:
            with kept.ends:
                return flow(*arguments)
        except httpx.HTTPError as error:
            if kept.outcome is None or error is kept.outcome[1]:
                raise
            away.say()
    returned, raised = kept.outcome
    if raised is not None:
        raise raised
    return returned.data if isinstance(returned, State) else returned


@contextmanager
def until_away(url: str) -> Iterator["Away"]:
    """Says once that a server is away, if it goes within, and waits at the end of the process for nothing that it was
    still to be reported; `url` is its API's."""
    away = Away(url)
    before, logging.raiseExceptions = logging.raiseExceptions, False  # of lines that cannot be sent there is no word
    loggers = [logging.getLogger(name) for name in BACKGROUND]
    for logger in loggers:
        logger.addFilter(away)
    try:
        yield away
    finally:
        if away.reported:
            abandon()
        else:
            logging.raiseExceptions = before
            for logger in loggers:
                logger.removeFilter(away)


class Away(logging.Filter):
    """Says once that the server is away, and drops what Prefect says of every event and line that it cannot send.

    Args:
        url: the server's.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.reported = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to show this record."""
        if record.levelno >= logging.WARNING and not self.reported and not is_there(self._url):
            self.say()
        return not self.reported

    def say(self) -> None:
        """Reports it, once."""
        if not self.reported:
            self.reported = True
            about = f"The Prefect server at {self._url} went away: what is under way goes on"
            err().print(f"{about}, and its page there lacks the rest.", style="yellow")


class _FlowOutcome:
    """A flow's own outcome, whatever becomes of telling it to a server."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self.ends = ExitStack()
        self.outcome: tuple[Any, BaseException | None] | None = None

    def work(self, *args: Any, **kwargs: Any) -> Any:
        """Does the flow's work; what follows in this flow, its report, waits for no server that is away."""
        try:
            self.outcome = self._work(*args, **kwargs), None
        except Exception as error:
            self.outcome = None, error
            raise
        finally:
            retries = END_RETRIES if is_there(PREFECT_API_URL.value() or "") else 0
            self.ends.enter_context(temporary_settings({PREFECT_CLIENT_MAX_RETRIES: retries}))
        return self.outcome[0]
