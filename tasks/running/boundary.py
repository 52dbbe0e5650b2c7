"""Define the tasks of a flow and the boundaries before them. At a boundary, a pause or a spent budget ends the flow."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.states import Completed

from schemas.failure import Paused
from storage.lake import Lake
from tasks.running.budget import Exhausted, Pause, exhausted, pause_of
from tasks.running.console import err, log_end, log_part, now
from tasks.running.run import Run, flow_name, run_id_under_way
from tasks.running.run_page import PAUSED, emit
from tasks.running.run_status import CURRENT, published

P = ParamSpec("P")
R = TypeVar("R")


class End:
    """The end of a flow."""

    def __init__(self) -> None:
        self.pause: Pause | Exhausted | None = None
        """Pause or spent budget that ended the flow early; None otherwise."""

    @property
    def state(self) -> "State[Pause | Exhausted] | None":
        """Return the result of the flow: None, or a completed state with the reason of the early end."""
        return self.pause and Completed(name="Paused", message=self.pause.text, data=self.pause)


_heeded: ContextVar[tuple[Run, End] | None] = ContextVar("heeded", default=None)


@contextmanager
def until_paused(run: Run) -> Iterator[End]:
    """End the enclosed work at the next `Boundary` after a pause or a spent budget, and report it."""
    end = End()
    before = _heeded.set((run, end))
    try:
        yield end
    except Paused as reached:
        if end.pause is None:
            raise
        log_end(str(reached))
        emit(run.lake, PAUSED, {"say": end.pause.text})
    finally:
        _heeded.reset(before)


class FlowTask(Task[P, R]):
    """A Prefect task if a server records the flow; else a plain function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task."""
        run = self.fn if FlowRunContext.get() is None else super().__call__
        return run(*args, **kwargs)


def flow_task(name: str) -> Callable[[Callable[P, R]], FlowTask[P, R]]:
    """Make a function a `FlowTask`. Every call runs the function."""
    return lambda work: FlowTask(work, name=name, cache_policy=NO_CACHE)


class Boundary(FlowTask[P, R]):
    """A task with a boundary: before it, a pause or a spent budget ends the flow (`until_paused`)."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task, or raise Paused if the lake is paused or its budget is spent."""
        if heeded := _heeded.get():
            run, end = heeded
            if there := pause_of(run.lake) or exhausted(run.lake, run.config.budget):
                end.pause = there
                raise there.refusal()
        return super().__call__(*args, **kwargs)


def boundary(name: str) -> Callable[[Callable[P, R]], Boundary[P, R]]:
    """Make a function a `Boundary` and a `part` of its run. Every call runs the function."""

    def wrap(work: Callable[P, R]) -> Boundary[P, R]:
        @wraps(work)
        def as_part(*args: P.args, **kwargs: P.kwargs) -> R:
            flow = flow_name()
            with part(flow if flow != name else "", name):
                return work(*args, **kwargs)

        return Boundary(as_part, name=name, cache_policy=NO_CACHE)

    return wrap


@contextmanager
def part(head: str, name: str) -> Iterator[None]:
    """Report the start and end of the enclosed work, and publish it as the current status (`tasks.running.run_status`).

    The start is not reported on a terminal, because the terminal shows the work itself.

    Args:
        head: subject of the run.
        name: name of the part.
    """
    if not err().is_terminal:
        log_part(head, name, "begins", last=False)
    begun = time.perf_counter()
    CURRENT.enter(run_id_under_way(), None, name)
    try:
        with now(head, name):
            yield
    finally:
        CURRENT.leave()
    log_part(head, name, f"{time.perf_counter() - begun:6.1f} s")


@contextmanager
def alone(lake: Lake, name: str) -> Iterator[None]:
    """Report and publish the enclosed work on a lake outside of a flow."""
    with published(lake, str(uuid4()), name), part("", name):
        yield
