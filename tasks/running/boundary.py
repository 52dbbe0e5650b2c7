"""The boundaries between stages, where a flow ends whose lake is paused or whose budget is spent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from schemas.failure import Paused
from tasks.running.budget import Exhausted, exhausted
from tasks.running.console import say
from tasks.running.events import PAUSED, emit
from tasks.running.pausing import Pause, pause_of
from tasks.running.run import Run

P = ParamSpec("P")
R = TypeVar("R")


class End:
    """How a flow came to its end."""

    def __init__(self) -> None:
        self.pause: Pause | Exhausted | None = None
        """What ended it early."""

    @property
    def state(self) -> "State[Pause | Exhausted] | None":
        """What a flow returns to Prefect and to its caller: None, or a completed run that names what ended it."""
        return self.pause and Completed(name="Paused", message=self.pause.text, data=self.pause)


_heeded: ContextVar[tuple[Run, End] | None] = ContextVar("heeded", default=None)


@contextmanager
def until_paused(run: Run) -> Iterator[End]:
    """Ends what is within at the next `Boundary` after the lake was paused or its budget spent, and says so."""
    end = End()
    before = _heeded.set((run, end))
    try:
        yield end
    except Paused as reached:
        if end.pause is None:
            raise
        say(str(reached))
        emit(run.lake, PAUSED, {"say": end.pause.text})
    finally:
        _heeded.reset(before)


class Boundary(Task[P, R]):
    """A Prefect task before which a flow ends where its lake is paused or its budget is spent (`until_paused`)."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the task; raises Paused before it does."""
        if heeded := _heeded.get():
            run, end = heeded
            if there := pause_of(run.lake) or exhausted(run.lake, run.config.budget):
                end.pause = there
                raise there.refusal()
        return super().__call__(*args, **kwargs)


def boundary(name: str) -> Callable[[Callable[P, R]], Boundary[P, R]]:
    """Makes a function such a task, done anew whenever it is called."""
    return lambda work: Boundary(work, name=name, cache_policy=NO_CACHE)
