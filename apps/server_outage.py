"""Run a flow that reports to the user's Prefect server, and continue if that server becomes unreachable."""

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
"""Prefect's loggers of messages sent to a server in the background."""
END_RETRIES = 2
"""Retries of each request with which Prefect reports a flow's end; they wait six seconds in all."""


def call_and_report(called: Any, arguments: Sequence[Any]) -> Any:
    """Runs a flow and returns its result, even if the configured server becomes unreachable meanwhile; raises the
    flow's errors.

    Args:
        called: the flow.
        arguments: its arguments.

    Raises:
        httpx.HTTPError: the server refused the flow, or became unreachable before it began.
    """
    if not isinstance(called, Flow):
        return called(*arguments)
    kept, flow = _FlowOutcome(called.fn), copy.copy(called)

    @wraps(called.fn)
    def work(*args: Any, **kwargs: Any) -> Any:
        return kept.work(*args, **kwargs)

    flow.fn = work
    with until_unreachable(PREFECT_API_URL.value() or "") as away:
        try:
            with kept.ends:
                return flow(*arguments)
        except httpx.HTTPError as error:
            if kept.outcome is None or error is kept.outcome[1]:
                raise
            away.report()
    returned, raised = kept.outcome
    if raised is not None:
        raise raised
    return returned.data if isinstance(returned, State) else returned


@contextmanager
def until_unreachable(url: str) -> Iterator["ServerOutage"]:
    """Reports once that a server becomes unreachable, and then drops its pending reports at the end of the process;
    `url` is its API's."""
    away = ServerOutage(url)
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


class ServerOutage(logging.Filter):
    """Reports once that the server is unreachable, and drops Prefect's messages about events and log lines that it
    cannot send.

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
            self.report()
        return not self.reported

    def report(self) -> None:
        """Reports it, once."""
        if not self.reported:
            self.reported = True
            about = f"The Prefect server at {self._url} became unreachable: current work continues"
            err().print(f"{about}, and its page there lacks the rest.", style="yellow")


class _FlowOutcome:
    """The result of a flow, kept even if its report to a server fails."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self.ends = ExitStack()
        self.outcome: tuple[Any, BaseException | None] | None = None

    def work(self, *args: Any, **kwargs: Any) -> Any:
        """Does the flow's work; the following report of this flow does not wait for an unreachable server."""
        try:
            self.outcome = self._work(*args, **kwargs), None
        except Exception as error:
            self.outcome = None, error
            raise
        finally:
            retries = END_RETRIES if is_there(PREFECT_API_URL.value() or "") else 0
            self.ends.enter_context(temporary_settings({PREFECT_CLIENT_MAX_RETRIES: retries}))
        return self.outcome[0]
