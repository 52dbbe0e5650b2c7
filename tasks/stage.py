"""A stage of an iteration as a Prefect task: done once, recorded in the lake, skipped on a restart.

The row in `stages` is written after everything else the stage wrote, so a kill anywhere leaves either a finished
stage or one that is done again; keys make doing it again harmless.
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
from tasks.console import say_stage

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
            result = work(config, lake, iteration)
            wall_s = time.perf_counter() - clock
            row = Stage(
                iteration=iteration,
                stage=name,
                run_id=lake.lake_id,
                started_at=started,
                wall_s=wall_s,
                result=json.dumps(result, sort_keys=True),
            )
            lake.append("stages", [row])
            say_stage(iteration, name, wall_s, result)
            return result

        run.__name__ = run.__qualname__ = f"{name}_stage"
        run.__doc__ = work.__doc__
        return task(name=name, retries=retries, cache_policy=NO_CACHE, persist_result=False)(run)

    return wrap


def result_of(lake: Lake, iteration: int, name: str) -> dict[str, Any] | None:
    """The numbers of a finished stage, or None."""
    rows = lake.read("stages", columns=["stage", "result"], where={"iteration": iteration}).to_pylist()
    return next((json.loads(row["result"]) for row in rows if row["stage"] == name), None)
