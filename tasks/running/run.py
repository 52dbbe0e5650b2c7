"""Define a run: the work of one command or deployment on a lake. A run is opened once and passed to every stage.

If a Prefect server records the flow, the run has the id of Prefect's flow run, so rows of the lake refer to Prefect's
records. A stage that is called alone makes its own run. Ids of trajectories do not depend on the run, so a resumed run
writes the same keys.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
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
    """Measures the time between the work of two stages, which is orchestration."""

    def __init__(self) -> None:
        self._left: float | None = None

    def leave(self) -> None:
        """Start to measure orchestration, at the end of a stage's work."""
        self._left = time.perf_counter()

    def waited(self) -> float | None:
        """Return the seconds since the end of the previous stage's work, in milliseconds precision; None before the
        first stage."""
        return None if self._left is None else round(time.perf_counter() - self._left, 3)


@dataclass(frozen=True, slots=True)
class Run:
    """Context of a stage."""

    config: Config
    lake: Lake
    run_id: str
    """Id of the run, a UUID."""
    clock: Clock = field(default_factory=Clock)


DRAWN = re.compile(r"([a-z]+-[a-z]+)?")
"""Name that Prefect draws."""
_under_way: ContextVar[Run | None] = ContextVar("run", default=None)
_unrecorded: ContextVar[str] = ContextVar("unrecorded", default="")
"""Name of the flow that runs without a Prefect server."""


def run_unrecorded(flow: Flow[..., Any], *arguments: Any) -> Any:
    """Run a flow and its tasks (`tasks.running.boundary`) as plain functions, without a Prefect server.

    Returns:
        The flow's result. If the flow returns a state, the data of the state.
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

    Servers that the run starts end with the run.

    Args:
        config: the resolved config.
        create: make a lake if there is none.

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
    """Return the current run, with the given config, if it uses the same lake. Else return a new run."""
    run = _under_way.get()
    if run is not None and run.config.lake == config.lake:
        return replace(run, config=config)
    return Run(config, Lake.open(config.lake, create), _identity())


def run_id_under_way() -> str:
    """Return the id of the current run; empty outside a run."""
    run = _under_way.get()
    return run.run_id if run else ""


def flow_name() -> str:
    """Return the name of the current flow; empty outside a flow."""
    context = FlowRunContext.get()
    return context.flow.name if context and context.flow else _unrecorded.get()


def run_name() -> str:
    """Return the name of the flow run for Prefect: the flow, what it works on, and the name that a person typed.

    Prefect draws two words, such as `bold-fox`, as the name of a run without a name.
    """
    given, typed = flow_run.parameters, flow_run.name or ""
    config = given.get("config")
    named = config.name if isinstance(config, Config) else str(config or "")
    on = next((str(given[key]) for key in ("policy", "directory") if given.get(key)), named)
    on = f"like {given['like']}" if given.get("like") else on
    explained = f"{flow_run.flow_name} {Path(on).name}".strip()
    if typed.startswith(explained):  # the run is repeated
        return typed
    return explained if DRAWN.fullmatch(typed) else f"{explained}: {typed}"


def _identity() -> str:
    context = FlowRunContext.get()
    return str(context.flow_run.id if context and context.flow_run else uuid4())
