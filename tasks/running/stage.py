"""A stage of an iteration as a Prefect task: done once, recorded in the lake, skipped on a restart.

The row in `stages` is written after all other rows of the stage, so a kill anywhere leaves either a finished stage or
one that is repeated; keys make the repetition harmless.

Between the work of two stages lies orchestration: Prefect's tasks and sub-flows, the row, the upkeep of the lake. Each
stage records the seconds since the run last left a stage's work (or chose its iterations).
"""

import json
import time
from collections.abc import Callable
from typing import Any

from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State

from models.serving.meter import charged, charged_since
from schemas.config import Config
from schemas.failure import EnvironmentDown, StoreStillUnreachable
from schemas.table import Metrics, utc_now
from schemas.tables.stage import Stage, StageName
from storage.lake import Lake
from tasks.openlineage import emitted
from tasks.running.boundary import Boundary
from tasks.running.console import head_of, log_stage, now
from tasks.running.events import emit_failure, emit_stage
from tasks.running.run import Run, run_of
from tasks.running.run_status import CURRENT
from tasks.running.traces import note, span

ORCHESTRATION = "orchestration_s"
"""Key in a stage's numbers: seconds between the work before it and its own; missing in a run's first stage."""
CHARGED = "charged"
"""Key in a stage's numbers: tokens counted by served models, by caller (`judge`, `think`, `reflect`, ...); missing
where there are none."""
StageWork = Callable[[Run, int], Metrics]
StageTask = Boundary[[Config, int], Metrics]


def stage(name: StageName, retries: int = 0) -> Callable[[StageWork], StageTask]:
    """Make a function of (run, iteration) a stage of (config, iteration); its result is stored as its numbers."""

    def wrap(work: StageWork) -> StageTask:
        def in_order(config: Config, iteration: int) -> Metrics:
            run = run_of(config)
            before = result_of(run.lake, iteration, name)
            return _done(run, iteration, name, work) if before is None else before

        in_order.__name__ = in_order.__qualname__ = f"{name}_stage"
        in_order.__doc__ = work.__doc__
        return Boundary(
            in_order,
            name=name,
            retries=retries,
            retry_condition_fn=_may_help,
            cache_policy=NO_CACHE,
            persist_result=False,
        )

    return wrap


def _may_help(_: Any, __: Any, state: State[Any]) -> bool:
    """Whether a failed stage may succeed if it is repeated at once."""
    return not isinstance(state.data, EnvironmentDown | StoreStillUnreachable)


def _done(run: Run, iteration: int, name: StageName, work: StageWork) -> Metrics:
    started, begun, waited, before = utc_now(), time.perf_counter(), run.clock.waited(), charged()
    about = {"iteration": iteration, "stage": name, "run_id": run.run_id, "lake": run.lake.lake_id}
    with span(f"stage {name}", about) as traced, now(head_of(iteration), name, lambda: last_time(run.lake, name)):
        CURRENT.enter(run.run_id, iteration, name)
        try:
            with emitted(run, name, f"iteration {iteration}") as made:
                result = work(run, iteration)
                made += [str(result["policy"])] if name in ("ct", "train") and "policy" in result else []
        except Exception as error:
            emit_failure(run.lake, iteration, name, error)
            raise
        finally:
            run.clock.leave()
            CURRENT.leave()
        note(traced, result)
    wall_s = time.perf_counter() - begun
    numbers = result if waited is None else {**result, ORCHESTRATION: waited}
    if tokens := charged_since(before):
        numbers = {**numbers, CHARGED: dict(tokens)}
    row = Stage(
        iteration=iteration,
        stage=name,
        run_id=run.run_id,
        started_at=started,
        wall_s=wall_s,
        result=json.dumps(numbers, sort_keys=True),
    )
    run.lake.append("stages", [row])
    log_stage(iteration, name, wall_s, result)
    emit_stage(run.lake, iteration, name, wall_s, result)
    return result


def last_time(lake: Lake, name: str) -> float | None:
    """Return the seconds of a stage's last run; None before the first."""
    rows = lake.read("stages", ["started_at", "wall_s"], {"stage": name}).to_pylist()
    return max(rows, key=lambda row: row["started_at"])["wall_s"] if rows else None


def result_of(lake: Lake, iteration: int, name: str) -> Metrics | None:
    """Return the numbers of a finished stage, or None."""
    rows = lake.read("stages", columns=["stage", "result"], where={"iteration": iteration}).to_pylist()
    return next((json.loads(row["result"]) for row in rows if row["stage"] == name), None)
