"""Add the terminal's lines, a table and a picture to Prefect's page of a run, and emit events for automations.

Only this module emits events. The facts of an event are stored in the lake before the event is emitted. Nothing waits
for an event, and a run continues if an event is lost. The resource of an event is the lake, `flywheel.lake.ID`. The
payload is a few numbers and names.

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
from prefect.events import emit_event
from prefect.logging.handlers import APILogHandler
from prefect.logging.loggers import flow_run_logger
from prefect.settings import PREFECT_API_URL

from schemas.tables.stage import HEADLINE, StageResult, label_of
from storage.lake import Lake
from tasks.running.console import listen

LAKE = "flywheel.lake"
ITERATION_COMPLETED = "flywheel.iteration.completed"
DATA_ACCEPTED = "flywheel.data.accepted"
PAUSED = "flywheel.wheel.paused"
HELD = "flywheel.policy.held"
DECIDED = {word: f"flywheel.policy.{event}" for word, event in (("promote", "promoted"), ("reject", "rejected"))}
DUE = {
    "flywheel.steps.enough": "on enough new accepted steps",
    "flywheel.decisions.enough": "on enough decisions of people",
    "flywheel.success.dropped": "on a drop of success",
    "flywheel.retraining.wanted": "on request",
}
"""Events that start a retraining, with their descriptions. Other programs emit the last of them."""


def emit(lake: Lake, event: str, payload: Mapping[str, Any]) -> bool:
    """Emit an event about a lake without waiting, and return whether a server accepted it.

    Args:
        lake: the lake.
        event: name of the event.
        payload: a few small JSON values.
    """
    if not is_open():
        return False
    resource = {"prefect.resource.id": f"{LAKE}.{lake.lake_id}", "prefect.resource.name": lake.uri}
    try:
        return emit_event(event, resource=resource, payload=dict(payload)) is not None
    except Exception:  # an error of the server must not end the run
        logging.getLogger(__name__).debug("%s was not emitted", event, exc_info=True)
        return False


def emit_result(lake: Lake, stage: str, result: StageResult, about: Mapping[str, Any]) -> None:
    """Emit the event of a stage's end: the special event of its result, or `flywheel.STAGE.completed`."""
    event, payload = result.event or (f"flywheel.{stage}.completed", {})
    emit(lake, event, {**about, HEADLINE: str(result)[:500], **payload})


def emit_failure(lake: Lake, iteration: int, stage: str, error: BaseException) -> None:
    """Emit the event of a stage's error, such as `flywheel.quality.failed`."""
    emit(lake, f"flywheel.{stage}.failed", {"iteration": iteration, "error": f"{type(error).__name__}: {error}"[:500]})


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
