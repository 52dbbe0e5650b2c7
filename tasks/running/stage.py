"""A stage of an iteration as a Prefect task: done once, recorded in the lake, skipped on a restart.

The row in `stages` is written after all other rows of the stage, so a kill anywhere leaves either a finished stage or
one that is repeated; keys make the repetition harmless.

Between the work of two stages lies orchestration: Prefect's tasks and sub-flows, the row, the upkeep of the lake. Each
stage records the seconds since the run last left a stage's work (or chose its iterations).
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from prefect.cache_policies import NO_CACHE

from models.serving.meter import charged, charged_since
from schemas.config import Config
from schemas.failure import EnvironmentDown, StoreStillUnreachable
from schemas.table import Metrics, utc_now
from schemas.tables.stage import Stage, StageName, StageResult
from storage.lake import Lake
from tasks.openlineage import emitted
from tasks.running.boundary import Boundary
from tasks.running.console import head_of, log_stage, now, print_line
from tasks.running.events import emit_failure, emit_result
from tasks.running.run import Run, run_of
from tasks.running.run_page import log
from tasks.running.run_status import CURRENT
from tasks.running.traces import note, span
from tasks.train.results import TrainResult

ORCHESTRATION = "orchestration_s"
"""Key in a stage's numbers: seconds between the work before it and its own; missing in a run's first stage."""
CHARGED = "charged"
"""Key in a stage's numbers: tokens counted by served models, by caller (`judge`, `think`, `reflect`, ...); missing
where there are none."""
StageWork = Callable[[Run, int], StageResult]
StageTask = Boundary[[Config, int], Metrics]
"""Returns the result as the lake stores it, whether the stage ran now or before a restart."""


@dataclass(slots=True)
class StageRun:
    """One run of a stage, as its observers see it."""

    run: Run
    iteration: int
    name: StageName
    started_at: datetime = field(default_factory=utc_now)
    result: StageResult = field(init=False)
    """Set when its work is done."""
    wall_s: float = 0.0
    """Seconds of its work; 0 until it is done."""


StageObserver = Callable[[StageRun], AbstractContextManager[None]]
"""Follows one stage: makes a context manager around its work, which lets the errors of the work through."""


def stage(name: StageName, retry: bool = False) -> Callable[[StageWork], StageTask]:
    """Make a function of (run, iteration) a stage of (config, iteration), whose result is stored.

    Args:
        name: its name in the lake and on Prefect's page.
        retry: repeat it once after an error, unless no sandbox works or the store stays unreachable.
    """

    def wrap(work: StageWork) -> StageTask:
        def in_order(config: Config, iteration: int) -> Metrics:
            run = run_of(config)
            if (before := result_of(run.lake, iteration, name)) is not None:
                return before
            try:
                return _done(run, iteration, name, work)
            except Exception as error:
                if not retry or isinstance(error, EnvironmentDown | StoreStillUnreachable):
                    raise
                print_line(f"{name} is repeated after {type(error).__name__}: {error}")
            return _done(run, iteration, name, work)

        in_order.__name__ = in_order.__qualname__ = f"{name}_stage"
        in_order.__doc__ = work.__doc__
        return Boundary(in_order, name=name, cache_policy=NO_CACHE, persist_result=False)

    return wrap


def _done(run: Run, iteration: int, name: StageName, work: StageWork) -> Metrics:
    stage, begun, waited, before = StageRun(run, iteration, name), time.perf_counter(), run.clock.waited(), charged()
    with observed(stage, AFTER_RECORD):
        try:
            with observed(stage, DURING_WORK):
                stage.result = work(run, iteration)
        finally:
            run.clock.leave()
        stage.wall_s = time.perf_counter() - begun
        numbers = stage.result.stored if waited is None else {**stage.result.stored, ORCHESTRATION: waited}
        if tokens := charged_since(before):
            numbers = {**numbers, CHARGED: dict(tokens)}
        row = Stage(
            iteration=iteration,
            stage=name,
            run_id=run.run_id,
            started_at=stage.started_at,
            wall_s=stage.wall_s,
            result=json.dumps(numbers, sort_keys=True),
        )
        run.lake.append("stages", [row])
    return stage.result.stored


@contextmanager
def observed(stage: StageRun, observers: Sequence[StageObserver]) -> Iterator[None]:
    """Let observers follow the enclosed work. One that fails is logged; the work and the others continue."""
    with ExitStack() as stack:
        for observer in observers:
            try:
                following = observer(stage)
                following.__enter__()
            except Exception:
                _log_failed(observer)
            else:
                stack.push(partial(_leave, observer, following))
        yield


def _leave(observer: StageObserver, following: AbstractContextManager[None], *raised: Any) -> bool:
    try:
        following.__exit__(*raised)
    except Exception as error:
        if error is not raised[1]:
            _log_failed(observer)
    return False


def _log_failed(observer: StageObserver) -> None:
    logging.getLogger(__name__).warning("The observer %r failed.", observer, exc_info=True)


@contextmanager
def _on_console(stage: StageRun) -> Iterator[None]:
    with now(head_of(stage.iteration), stage.name, lambda: last_time(stage.run.lake, stage.name)):
        yield
    log_stage(stage.iteration, stage.name, stage.wall_s, stage.result)


@contextmanager
def _on_run_page(stage: StageRun) -> Iterator[None]:
    yield
    log(f"{head_of(stage.iteration)}  {stage.name} {stage.wall_s:.1f} s  {stage.result}")


@contextmanager
def _as_event(stage: StageRun) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        emit_failure(stage.run.lake, stage.iteration, stage.name, error)
        raise
    about = {"iteration": stage.iteration, "seconds": round(stage.wall_s, 1)}
    emit_result(stage.run.lake, stage.name, stage.result, about)


@contextmanager
def _as_span(stage: StageRun) -> Iterator[None]:
    run = stage.run
    about = {"iteration": stage.iteration, "stage": stage.name, "run_id": run.run_id, "lake": run.lake.lake_id}
    with span(f"stage {stage.name}", about) as traced:
        yield
        note(traced, stage.result.stored)


@contextmanager
def _as_status(stage: StageRun) -> Iterator[None]:
    CURRENT.enter(stage.run.run_id, stage.iteration, stage.name)
    try:
        yield
    finally:
        CURRENT.leave()


@contextmanager
def _as_lineage(stage: StageRun) -> Iterator[None]:
    with emitted(stage.run, stage.name, f"iteration {stage.iteration}") as made:
        yield
        if isinstance(stage.result, TrainResult) and stage.result.policy:
            made.append(stage.result.policy)


AFTER_RECORD: tuple[StageObserver, ...] = (_as_event, _on_run_page, _on_console)
"""Observers that report the end after its row is in the lake, the last one first."""
DURING_WORK: tuple[StageObserver, ...] = (_as_span, _as_status, _as_lineage)
"""Observers of the work itself."""


def last_time(lake: Lake, name: str) -> float | None:
    """Return the seconds of a stage's last run; None before the first."""
    rows = lake.read("stages", ["started_at", "wall_s"], {"stage": name}).to_pylist()
    return max(rows, key=lambda row: row["started_at"])["wall_s"] if rows else None


def result_of(lake: Lake, iteration: int, name: str) -> Metrics | None:
    """Return the stored result of a finished stage, or None."""
    rows = lake.read("stages", columns=["stage", "result"], where={"iteration": iteration}).to_pylist()
    return next((json.loads(row["result"]) for row in rows if row["stage"] == name), None)
