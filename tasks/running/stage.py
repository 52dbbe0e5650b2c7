"""Define stages of an iteration as Prefect tasks. A finished stage is recorded in the lake, and a restart skips it.

The row in `stages` is written after all other rows of the stage. If the process is killed earlier, the whole stage is
repeated. Repeated rows have the same keys, so they change nothing.

The time between the work of two stages is orchestration: Prefect's tasks and flows, the row in `stages`, and upkeep of
the lake. Each stage records this time, measured from the end of the previous stage's work.
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

from models.serving.openai import charged, charged_since
from schemas.config import Config
from schemas.failure import EnvironmentDown, StoreStillUnreachable
from schemas.table import Metrics, utc_now
from schemas.tables.stage import Stage, StageName, StageResult
from storage.lake import Lake
from tasks.openlineage import emitted
from tasks.running.boundary import Boundary
from tasks.running.console import head_of, log_stage, now, print_line
from tasks.running.run import Run, run_of
from tasks.running.run_page import emit_failure, emit_result, log
from tasks.running.run_status import CURRENT
from tasks.running.traces import note, span
from tasks.train.supervised import TrainResult

ORCHESTRATION = "orchestration_s"
"""Key in a stage's numbers: seconds between the previous stage's work and this stage's work. It may be missing in the
first stage of a run."""
CHARGED = "charged"
"""Key in a stage's numbers: tokens that served models counted, by caller (`judge`, `think`, `reflect`, ...). The key is
missing if there are no such tokens."""
StageWork = Callable[[Run, int], StageResult]
StageTask = Boundary[[Config, int], Metrics]
"""Prefect task of a stage. It returns the stored result, also if the stage finished before a restart."""


@dataclass(slots=True)
class StageRun:
    """One run of a stage, for its observers."""

    run: Run
    iteration: int
    name: StageName
    started_at: datetime = field(default_factory=utc_now)
    result: StageResult = field(init=False)
    """Result of the stage, set at the end of its work."""
    wall_s: float = 0.0
    """Seconds of the stage's work; 0 until its end."""


StageObserver = Callable[[StageRun], AbstractContextManager[None]]
"""Function that returns a context manager for the work of one stage. The context manager must not suppress errors."""


def stage(name: StageName, retry: bool = False) -> Callable[[StageWork], StageTask]:
    """Make a stage, a function of (config, iteration), from a function of (run, iteration). The result is stored.

    Args:
        name: name of the stage in the lake and on Prefect's page.
        retry: repeat the stage once after an error, unless an environment is down or the store stays unreachable.
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
    """Run the enclosed work with observers. An error of an observer is logged, and the work and other observers
    continue."""
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
"""Observers that report the end of a stage after its row is in the lake. The last observer reports first."""
DURING_WORK: tuple[StageObserver, ...] = (_as_span, _as_status, _as_lineage)
"""Observers of a stage's work."""


def last_time(lake: Lake, name: str) -> float | None:
    """Return the seconds of the stage's last run; None if it never ran."""
    rows = lake.read("stages", ["started_at", "wall_s"], {"stage": name}).to_pylist()
    return max(rows, key=lambda row: row["started_at"])["wall_s"] if rows else None


def result_of(lake: Lake, iteration: int, name: str) -> Metrics | None:
    """Return the stored result of a finished stage, or None."""
    rows = lake.read("stages", columns=["stage", "result"], where={"iteration": iteration}).to_pylist()
    return next((json.loads(row["result"]) for row in rows if row["stage"] == name), None)
