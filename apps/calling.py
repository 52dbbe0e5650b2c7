"""Call a flow from the command line, with or without a Prefect server.

A server that the user has set (PREFECT_API_URL) records the run. Without a server, a flow and its tasks are plain
functions. The lake has all state, so nothing depends on the record.
"""

import copy
import gc
import importlib
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import wraps
from typing import Any

import httpx
from prefect import Flow, State
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from apps.process import abandon
from tasks.running.console import caller_reports, err
from tasks.running.progress_lines import progress_lines
from tasks.running.run import run_unrecorded
from tasks.running.run_page import answers

BACKGROUND = ("EventsWorker", "APILogWorker", "prefect.events.clients")
"""Prefect's loggers of messages sent to a server in the background."""


def call(flow: str, *arguments: Any) -> Any:
    """Runs a flow and returns its result. Its errors are raised and not logged; the caller reports an early end.

    If the user's server is unreachable at the start or at the end, one line names it.

    Args:
        flow: dotted path of the flow.
        arguments: arguments of the flow.

    Raises:
        httpx.HTTPError: the server refused the flow, or became unreachable before it began.
    """
    module, _, name = flow.rpartition(".")
    with progress_lines(f"Starting {name.replace('_', ' ')}"), caller_reports():
        called: Flow[..., Any] = getattr(importlib.import_module(module), name)
        gc.freeze()  # excludes the imported objects from every later garbage collection
        url = PREFECT_API_URL.value()
        if url and answers(url):
            return _recorded(called, arguments, url)
        if url:
            problem = f"The Prefect server at {url} (PREFECT_API_URL) does not answer"
            err().print(f"{problem}. The command continues; its page will not list this run.", style="yellow")
        return run_unrecorded(called, *arguments)


def _recorded(flow: Flow[..., Any], arguments: Sequence[Any], url: str) -> Any:
    """Runs a flow that a server records; its outcome counts even if the server is unreachable when it ends."""
    done, ends = Future[Any](), ExitStack()

    @wraps(flow.fn)
    def work(*args: Any, **kwargs: Any) -> Any:
        try:
            done.set_result(flow.fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        if not answers(url):
            ends.enter_context(temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}))
        return done.result()

    recorded = copy.copy(flow)
    recorded.fn = work
    silence_background()
    for handler in logging.getLogger().handlers:  # Prefect's import has added its own
        handler.addFilter(_not_prefect)
    try:
        with ends:
            return recorded(*arguments)
    except httpx.HTTPError as error:
        if not done.done() or error is done.exception():
            raise
        report_outage(url)
    returned = done.result()
    return returned.data if isinstance(returned, State) else returned


def _not_prefect(record: logging.LogRecord) -> bool:
    """Returns whether to show a record; Prefect logs every error once per task and flow, and also raises it to the
    caller."""
    return not record.name.startswith("prefect")


def silence_background() -> None:
    """Silences Prefect's messages about events and log lines that a server does not accept."""
    logging.raiseExceptions = False
    for name in BACKGROUND:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def report_outage(url: str) -> None:
    """Reports that the server is unreachable, and drops its pending messages when the process ends."""
    about = f"The Prefect server at {url} became unreachable: the lake has all data"
    err().print(f"{about}, and the page there lacks the rest.", style="yellow")
    abandon()
