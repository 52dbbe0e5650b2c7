"""Emit events to a Prefect server, so that automations can react. Only this module emits events.

The facts of an event are stored in the lake before the event is emitted. Nothing waits for an event, and a run
continues if an event is lost. The resource of an event is the lake, `flywheel.lake.ID`. The payload is a few numbers
and names.
"""

import logging
from collections.abc import Mapping
from typing import Any

from prefect.events import emit_event

from schemas.tables.stage import HEADLINE, StageResult
from storage.lake import Lake
from tasks.running.run_page import is_open

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
