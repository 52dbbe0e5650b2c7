"""Add the terminal's lines, a table and a picture to Prefect's page of a run.

An error of the server never ends the run.
"""

import logging
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec

from prefect.artifacts import create_image_artifact, create_table_artifact
from prefect.context import FlowRunContext
from prefect.logging.handlers import APILogHandler
from prefect.logging.loggers import flow_run_logger
from prefect.settings import PREFECT_API_URL

from schemas.tables.stage import label_of
from tasks.running.console import listen

P = ParamSpec("P")
PATIENCE_S = 5.0


def answers(url: str) -> bool:
    """Whether the address of an API answers. Authorization and TLS errors count as answers; a gateway's error does not.

    The request does not use Prefect, which takes up to a minute to give up.
    """
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=PATIENCE_S):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except urllib.error.URLError as error:
        return isinstance(error.reason, ssl.SSLError)
    except (OSError, ValueError):
        return False


def is_open() -> bool:
    """Whether the current code runs in a flow run that has a page on a server."""
    return bool(PREFECT_API_URL.value()) and FlowRunContext.get() is not None


def _harmless(work: Callable[P, None]) -> Callable[P, None]:
    @wraps(work)
    def tried(*args: P.args, **kwargs: P.kwargs) -> None:
        if is_open():
            try:
                work(*args, **kwargs)
            except Exception:
                logging.getLogger(__name__).debug("%s failed", work.__name__, exc_info=True)

    return tried


@_harmless
def log(text: str) -> None:
    """Add a line to the run's log on the page. The line is not printed."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    adapter = flow_run_logger(context.flow_run, context.flow)
    logger: logging.Logger = adapter.logger
    record = logger.makeRecord(logger.name, logging.INFO, "", 0, text, (), None, extra=dict(adapter.extra or {}))
    for handler in logger.handlers:
        if isinstance(handler, APILogHandler):
            handler.handle(record)


@_harmless
def show_iteration(iteration: int, stages: Sequence[Mapping[str, Any]], picture: str | None) -> None:
    """Add a finished iteration to the page.

    Args:
        iteration: number of the iteration.
        stages: rows of a table, one for each stage.
        picture: an SVG of the success curve; None before the first measured policy.
    """
    if not answers(PREFECT_API_URL.value() or ""):
        return  # Prefect would retry for minutes
    about = label_of(iteration)
    create_table_artifact(key="flywheel-iteration", table=[dict(row) for row in stages], description=about)
    if picture is None:
        return
    source = f"data:image/svg+xml;base64,{b64encode(picture.encode()).decode()}"
    create_image_artifact(source, "flywheel-success", description=f"Success on held-out seeds, to {about}")


listen(log)
