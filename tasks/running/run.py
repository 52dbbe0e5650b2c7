"""A run: one command's, or one deployment's, work on a lake; opened once and handed to every stage.

Where a Prefect server records the flow, the id is Prefect's id of its run, so the lake's rows and Prefect's records
refer to each other. A stage that is called alone makes a run of its own. Ids of trajectories do not depend on it: a
continued run writes the same keys.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from prefect import Flow, State
from prefect.context import FlowRunContext
from prefect.runtime import flow_run

from common.process import home
from models.serving.served import close_servers
from schemas.config import Config
from storage.lake import Lake
from tasks.running.run_status import published
from tasks.running.traces import set_up, span


class Clock:
    """Separates work from the orchestration between the work of two stages."""

    def __init__(self) -> None:
        self._left: float | None = None

    def leave(self) -> None:
        """Begin to count orchestration, until a stage's work begins."""
        self._left = time.perf_counter()

    def waited(self) -> float | None:
        """Return the seconds since a stage was left, rounded to milliseconds; None before the first."""
        return None if self._left is None else round(time.perf_counter() - self._left, 3)


@dataclass(frozen=True, slots=True)
class Run:
    """Context of a stage."""

    config: Config
    lake: Lake
    run_id: str
    """A UUID."""
    clock: Clock = field(default_factory=Clock)


_under_way: ContextVar[Run | None] = ContextVar("run", default=None)
_unrecorded: ContextVar[str] = ContextVar("unrecorded", default="")
"""The name of the flow that runs without a server."""


def run_unrecorded(flow: Flow[..., Any], *arguments: Any) -> Any:
    """Run a flow as a plain function, with its tasks (`tasks.running.boundary`): no Prefect server records it.

    Returns:
        The flow's result; the data of a state that it returns.
    """
    before = _unrecorded.set(flow.name)
    try:
        returned = flow.fn(*arguments)
    finally:
        _unrecorded.reset(before)
    return returned.data if isinstance(returned, State) else returned


@contextmanager
def open_run(config: Config, create: bool = True) -> Iterator[Run]:
    """Open the run of the enclosed stages, and publish its status (`tasks.running.run_status`).

    Servers that it starts end with it.

    Args:
        config: the resolved config.
        create: make the lake if there is none.

    Raises:
        LakeError: the lake cannot be opened.
    """
    run = Run(config, Lake.open(config.lake, create), _identity())
    before = _under_way.set(run)
    set_up(config, home())
    try:
        about = {"run_id": run.run_id, "lake": run.lake.lake_id, "name": config.name}
        with (
            published(run.lake, run.run_id, flow_name()),
            span("run", about),
        ):
            yield run
    finally:
        _under_way.reset(before)
        close_servers()


def run_of(config: Config, create: bool = True) -> Run:
    """Return the run under way, with this config, if it is at the same lake; else a new one, as `open_run` makes it."""
    run = _under_way.get()
    if run is not None and run.config.lake == config.lake:
        return replace(run, config=config)
    return Run(config, Lake.open(config.lake, create), _identity())


def run_id_under_way() -> str:
    """Return the id of the run under way; empty where there is none."""
    run = _under_way.get()
    return run.run_id if run else ""


def flow_name() -> str:
    """Return the name of the flow under way; empty where there is none."""
    context = FlowRunContext.get()
    return context.flow.name if context and context.flow else _unrecorded.get()


def run_name() -> str:
    """Return Prefect's name of a flow run: the flow, and the id in the lake's tables."""
    return f"{flow_run.flow_name}-{flow_run.id}"


def _identity() -> str:
    context = FlowRunContext.get()
    return str(context.flow_run.id if context and context.flow_run else uuid4())
