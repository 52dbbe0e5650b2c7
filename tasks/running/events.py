"""Emit events to a Prefect server, so that automations can react: the one module that emits events.

An event is news, not state: its facts are in the lake before it is emitted, nothing waits for it, and the run continues
where it cannot be emitted. Its resource is the lake, `flywheel.lake.ID`; its payload is a handful of numbers and names.
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
"""Events that start a retraining, with their descriptions; other programs emit the last one."""


def emit(lake: Lake, event: str, payload: Mapping[str, Any]) -> bool:
    """Emit an event about a lake; return whether a server took it. Nothing waits for it.

    Args:
        lake: its subject.
        event: its name.
        payload: JSON values, few and small.
    """
    if not is_open():
        return False
    resource = {"prefect.resource.id": f"{LAKE}.{lake.lake_id}", "prefect.resource.name": lake.uri}
    try:
        return emit_event(event, resource=resource, payload=dict(payload)) is not None
    except Exception:  # a server's trouble is not the run's
        logging.getLogger(__name__).debug("%s was not emitted", event, exc_info=True)
        return False


def emit_result(lake: Lake, stage: str, result: StageResult, about: Mapping[str, Any]) -> None:
    """Emit the end of a stage: its own event, such as the decision after a promotion, else its name."""
    event, payload = result.event or (f"flywheel.{stage}.completed", {})
    emit(lake, event, {**about, HEADLINE: str(result)[:500], **payload})


def emit_failure(lake: Lake, iteration: int, stage: str, error: BaseException) -> None:
    """Emit a stage's error, such as `flywheel.quality.failed`."""
    emit(lake, f"flywheel.{stage}.failed", {"iteration": iteration, "error": f"{type(error).__name__}: {error}"[:500]})
