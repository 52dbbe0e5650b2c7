"""A stage of an iteration as a Prefect task: done once, recorded in the lake, skipped on a restart.

The row in `stages` is written after everything else the stage wrote, so a kill anywhere leaves either a finished
stage or one that is done again; keys make doing it again harmless.

Between the work of two stages lies orchestration: Prefect's tasks and sub-flows, the row that is written, the upkeep
of the lake. Each stage keeps the seconds since this process last left a stage's work (or settled what to turn).
"""

import json
import time
from collections.abc import Callable
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.config import Config
from schemas.stage import Stage, StageName
from schemas.table import utc_now
from storage.lake import Lake
from tasks.shared.console import say_stage

ORCHESTRATION = "orchestration_s"
"""Of a stage's numbers: the seconds between the work before it and its own; missing in a process's first stage."""
_left: float | None = None
StageWork = Callable[[Config, Lake, int], dict[str, Any]]


def stage(name: StageName, retries: int = 0) -> Callable[[StageWork], Callable[[Config, int], dict[str, Any]]]:
    """Makes a function of (config, lake, iteration) a stage; what it returns is kept as the stage's numbers."""

    def wrap(work: StageWork) -> Callable[[Config, int], dict[str, Any]]:
        def run(config: Config, iteration: int) -> dict[str, Any]:
            lake = Lake.open(config.lake)
            before = result_of(lake, iteration, name)
            if before is not None:
                return before
            started, clock = utc_now(), time.perf_counter()
            waited = {} if _left is None else {ORCHESTRATION: round(clock - _left, 3)}
            try:
                result = work(config, lake, iteration)
            finally:
                leave()
            wall_s = time.perf_counter() - clock
            row = Stage(
                iteration=iteration,
                stage=name,
                run_id=lake.lake_id,
                started_at=started,
                wall_s=wall_s,
                result=json.dumps({**result, **waited}, sort_keys=True),
            )
            lake.append("stages", [row])
            say_stage(iteration, name, wall_s, result)
            return result

        run.__name__ = run.__qualname__ = f"{name}_stage"
        run.__doc__ = work.__doc__
        return task(name=name, retries=retries, cache_policy=NO_CACHE, persist_result=False)(run)

    return wrap


def leave() -> None:
    """From here on this process orchestrates, until a stage's work begins."""
    global _left
    _left = time.perf_counter()


def result_of(lake: Lake, iteration: int, name: str) -> dict[str, Any] | None:
    """The numbers of a finished stage, or None."""
    rows = lake.read("stages", columns=["stage", "result"], where={"iteration": iteration}).to_pylist()
    return next((json.loads(row["result"]) for row in rows if row["stage"] == name), None)
