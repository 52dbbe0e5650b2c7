"""Add the terminal's lines, a table and a picture to Prefect's page of a run.

This needs a server of the user's own: the temporary one of a command has no page. A failure of the server never fails
the run.
"""

import logging
import os
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
from tasks.running.answering import is_there
from tasks.running.console import listen

P = ParamSpec("P")
TEMPORARY = "FLYWHEEL_TEMPORARY_SERVER"
"""Environment variable with the address of this command's temporary server, if it has one."""


def is_open() -> bool:
    """Whether this is part of a flow run with a page on a server of the user's own."""
    url = PREFECT_API_URL.value()
    return bool(url) and url != os.environ.get(TEMPORARY) and FlowRunContext.get() is not None


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
    """Add a line to the run's log there only, as a terminal has it already."""
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
def show_iteration(iteration: int, stages: Sequence[Mapping[str, Any]], picture: str) -> None:
    """Put a finished iteration on the page.

    Args:
        iteration: its number.
        stages: rows of a table, one for each of its stages.
        picture: an SVG of the learning curve.
    """
    if not is_there(PREFECT_API_URL.value() or ""):
        return  # Prefect would retry for minutes
    about = label_of(iteration)
    create_table_artifact(key="flywheel-iteration", table=[dict(row) for row in stages], description=about)
    source = f"data:image/svg+xml;base64,{b64encode(picture.encode()).decode()}"
    create_image_artifact(source, "flywheel-success", description=f"Success on held-out seeds, to {about}")


listen(log)
