"""Find the finished iterations and the next iteration."""

import json

from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.stage import HEADLINE, STAGES, Stage
from storage.lake import Lake
from tasks.running.boundary import flow_task
from tasks.running.run import run_of
from tasks.running.run_page import ITERATION_COMPLETED, emit, is_open, show_iteration
from tasks.running.stage import result_of
from tasks.shared.status import iterations

IN_GROUPS = "in_groups"
"""Key in the result of the stage `curriculum`: whether the iteration's trajectories are made in groups."""


def finished_iterations(lake: Lake) -> list[int]:
    """Return the iterations whose last stage is recorded, in order."""
    rows = lake.read("stages", ["iteration"], {"stage": STAGES[-1]})["iteration"].to_pylist()
    return sorted(rows)


def next_iteration(lake: Lake) -> int:
    """Return the first iteration that is not finished. It may have started."""
    done = finished_iterations(lake)
    return done[-1] + 1 if done else 0


@flow_task("plan")
def plan_iterations(config: Config, iterations: int | None = None) -> list[int]:
    """Return the iterations to run. The first of them continues after its last finished stage.

    Raises:
        UsageError: the first iteration was started for a method that collects differently.
    """
    run = run_of(config)
    lake = run.lake
    first = next_iteration(lake)
    begun = (result_of(lake, first, "curriculum") or {}).get(IN_GROUPS, config.train.in_groups)
    if begun != config.train.in_groups:
        raise UsageError(
            f"`train.method={config.train.method}`: iteration {first} is not finished, and its trajectories were "
            f"chosen for a method {'with' if begun else 'without'} groups.",
            "Finish it by `flywheel run --iterations 1` with the method it was begun with.",
        )
    run.clock.leave()
    return list(range(first, first + (iterations if iterations is not None else config.iterations)))


@flow_task("close")
def close_iteration(config: Config, iteration: int) -> None:
    """Maintain the lake's files after an iteration, and add the iteration to Prefect's page of the run."""
    lake = run_of(config).lake
    lake.maintain()
    if is_open():
        _show(lake, iteration)


def _show(lake: Lake, iteration: int) -> None:
    from tasks.running.curve import success_chart, svg

    rows = [row for row in iterations(lake) if 0 <= row.iteration <= iteration]
    finished = sorted(lake.rows(Stage, {"iteration": iteration}), key=lambda row: row.started_at)
    table = [
        {"stage": row.stage, "seconds": round(row.wall_s, 1), "what": json.loads(row.result).get(HEADLINE, "")}
        for row in finished
    ]
    chart = success_chart(rows)
    show_iteration(iteration, table, svg(chart) if chart else None)
    own = rows[-1] if rows else None
    payload = {key: getattr(own, key, None) for key in ("iteration", "policy", "success", "promoted")}
    emit(lake, ITERATION_COMPLETED, payload)
