"""`flywheel run --dry-run`: what a run would do, where, and what it would leave behind."""

from dataclasses import dataclass
from typing import Any

from apps.environment import home
from apps.lakes import is_finished, laps
from environments.catalog import catalog
from environments.environment import Environment
from environments.registry import environments_of
from schemas.config import Config
from schemas.stage import STAGES
from storage.lake import Lake
from tasks.shared.console import out
from tasks.shared.places import lake_if_any

BYTES_PER_TRAJECTORY = 15_000
"""Lake bytes per trajectory of the laptop profile, used until the lake has trajectories to go by."""
BYTES_PER_POLICY = 10_000_000
"""A checkpoint of the laptop profile."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What each iteration costs."""

    played: int
    held_out: int
    trajectories: int
    steps_first: int
    steps: int
    evaluation_plays: int
    start_plays: int
    """Plays before the first iteration: the untrained policy and the explorer."""


def plan_of(config: Config) -> Plan:
    """The plan; raises UsageError for tasks that do not exist."""
    tasks = catalog(config)
    played, held_out, practice = (
        sum(task.split == split for task in tasks) for split in ("train", "held_out", "practice")
    )
    plays = played * config.evaluate.seeds + held_out * config.evaluate.held_out_seeds
    return Plan(
        played,
        held_out,
        _trajectories(config, played, practice),
        config.train.steps_first,
        config.train.steps,
        plays,
        plays + played * config.evaluate.explorer_seeds,
    )


def _trajectories(config: Config, played: int, practice: int) -> int:
    group, collect = config.train.group, config.collect
    if config.train.in_groups:
        return group.groups * group.size
    return played * collect.trajectories_per_task + practice * collect.practice_trajectories


def show_plan(config: Config, iterations: int) -> None:
    """Prints the plan; opens the lake for reading if there is one, and writes nothing."""
    plan = plan_of(config)
    lake = lake_if_any(config)
    new = lake is None or not laps(lake)
    megabytes = iterations * (plan.trajectories * _bytes_each(lake) + BYTES_PER_POLICY) / 1e6
    lines = {
        "tasks": f"{plan.played} played: {', '.join(config.suite.tasks)}",
        "held out": f"{plan.held_out} only measured: {', '.join(config.suite.held_out) or 'none'}",
        "stands": _stand(lake),
        "iterations": f"{iterations} more",
        "trajectories": f"{plan.trajectories:,} an iteration, {iterations * plan.trajectories:,} in all",
        "training": f"{plan.steps:,} optimiser steps an iteration"
        + (f", {plan.steps_first:,} in the first" if new else ""),
        "evaluation": f"{plan.evaluation_plays:,} plays an iteration"
        + (f", {plan.start_plays:,} at the start" if new else ""),
        "lake": lake.uri if lake else f"{config.lake.uri} (will be made)",
        "report": "report/index.html in the " + ("work folder" if "://" in config.lake.uri else "lake"),
        "work folder": str(home()),
        "sandboxes": "; ".join(_sandboxes(environment) for environment in environments_of(config)),
        "disk": f"about {megabytes:,.0f} MB more",
    }
    console = out()
    for name, said in lines.items():
        console.print(f"{name:<13} {said}")


def _stand(lake: Lake | None) -> str:
    begun = laps(lake) if lake else []
    done = [lap for lap in begun if is_finished(lap)]
    said = f"{len(done)} iterations are finished"
    open_laps = [lap for lap in begun if not is_finished(lap)]
    if open_laps:
        stages = [stage for stage in STAGES if stage in open_laps[-1]["stages_s"]]
        said += f"; iteration {open_laps[-1]['iteration']} goes on after {stages[-1] if stages else 'its beginning'}"
    return said


def _bytes_each(lake: Lake | None) -> float:
    played = lake.count("trajectories") if lake else 0
    if lake is None or not played:
        return BYTES_PER_TRAJECTORY
    return max(0, lake.size_bytes() - BYTES_PER_POLICY * lake.count("policies")) / played


def _sandboxes(environment: Environment[Any]) -> str:
    found = [probe.check() for probe in environment.probes() if probe.required]
    needs = "".join(f", {check.detail} {check.hint}".rstrip() for check in found)
    return f"{environment.size} of {environment.name} at the same time{needs}"
