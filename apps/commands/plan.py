"""`flywheel run --dry-run`: what a run would do, where, and what it would leave behind."""

from dataclasses import dataclass
from typing import Any

from apps.environment import home
from apps.lakes import begun_iterations, is_finished
from environments.catalog import catalog
from environments.environment import Environment
from environments.registry import environments_of
from learning.algorithms.method import Optimizer, method_of
from learning.engines.choice import is_small
from schemas.config import Config
from schemas.config.training import EpochSection
from schemas.tables.stage import STAGES
from schemas.text import counted
from storage.lake import Lake
from tasks.preflight.preflight import parts
from tasks.preflight.unread import refuse_unread
from tasks.shared.budget import account, sentence
from tasks.shared.console import out
from tasks.shared.paths import lake_if_any

BYTES_PER_TRAJECTORY = 15_000
"""Lake bytes per trajectory of the laptop profile, used until the lake has trajectories to go by."""
BYTES_PER_POLICY = 10_000_000
"""A checkpoint of the laptop profile."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What each iteration costs."""

    tasks: int
    trajectories: int
    training: str
    evaluation: int
    """Trajectories."""
    start: int
    """Trajectories before the first iteration: the untrained policy's and the explorer's."""


def plan_of(config: Config) -> Plan:
    """The plan; raises UsageError for tasks that do not exist."""
    tasks = catalog(config)
    suite, held_out, practice = (
        sum(task.split == split for task in tasks) for split in ("train", "held_out", "practice")
    )
    chosen = config.evaluate
    return Plan(
        suite,
        _trajectories(config, suite, practice),
        _training(config),
        suite * chosen.seeds + held_out * chosen.held_out_seeds,
        suite * (chosen.untrained_seeds + chosen.explorer_seeds),
    )


def _training(config: Config) -> str:
    """How long the method trains; one that counts epochs takes as many steps as it finds samples."""
    train, method = config.train, method_of(config.train)
    own = method.settings(train)
    if isinstance(own, EpochSection):
        return f"{train.method}: {own.epochs:g} epochs of what it finds, {own.batch} samples a step"
    optimizer: Optimizer = "muon" if is_small(config.policy.base) else "adamw"
    steps, first = (method.schedule(train, 0, optimizer, first).steps for first in (False, True))
    return f"{train.method}: {steps:,} optimiser steps an iteration" + (f", {first:,} in the first" * (first != steps))


def _trajectories(config: Config, suite: int, practice: int) -> int:
    group, collect = config.train.group, config.collect
    if config.train.in_groups:
        return group.groups * group.size
    return suite * collect.trajectories_per_task + practice * collect.practice_trajectories


def show_plan(config: Config, iterations: int) -> None:
    """Prints the plan; opens the lake for reading if there is one, and writes nothing.

    Raises:
        FlywheelError: a part that the config names cannot be used.
    """
    for part in parts(config):
        part.examine()
    plan = plan_of(config)
    lake = lake_if_any(config)
    new = lake is None or not begun_iterations(lake)
    megabytes = iterations * (plan.trajectories * _bytes_each(lake) + BYTES_PER_POLICY) / 1e6
    lines = {
        "tasks": f"{plan.tasks} in the suite: {', '.join(config.suite.tasks)}",
        "held out": _held_out(config),
        "so far": _stand(lake),
        "iterations": f"{iterations} more",
        "trajectories": f"{plan.trajectories:,} an iteration, {iterations * plan.trajectories:,} in all",
        "training": plan.training,
        "options": refuse_unread(config),
        "evaluation": f"{plan.evaluation:,} trajectories an iteration"
        + (f", {plan.start:,} at the start" if new else ""),
        "lake": lake.uri if lake else f"{config.lake.uri} (will be made)",
        "report": "report/index.html in the " + ("work folder" if "://" in config.lake.uri else "lake"),
        "budget": _budget(config, lake, iterations),
        "work folder": str(home()),
        "sandboxes": "; ".join(_sandboxes(environment) for environment in environments_of(config)),
        "disk": f"about {megabytes:,.0f} MB more",
    }
    console = out()
    for name, text in lines.items():
        console.print(f"{name:<13} {text}")


def _budget(config: Config, lake: Lake | None, iterations: int) -> str:
    if not config.budget.limits:
        return "none set"
    if lake is None:
        return ", ".join(f"{allowed:,.6g} {what}" for what, allowed in config.budget.limits.items())
    return "; ".join(sentence(row, iterations) for row in account(lake, config.budget, iterations))


def _held_out(config: Config) -> str:
    names = config.suite.held_out
    return f"{len(names)}, measured and never trained on: {', '.join(names)}" if names else "none"


def _stand(lake: Lake | None) -> str:
    begun = begun_iterations(lake) if lake else []
    stands = f"{counted(sum(is_finished(one) for one in begun), 'iteration')} finished"
    if unfinished := [one for one in begun if not is_finished(one)]:
        stages = [stage for stage in STAGES if stage in unfinished[-1]["stages_s"]]
        return f"{stands}; iteration {unfinished[-1]['iteration']} goes on after {(stages or ['its beginning'])[-1]}"
    return stands


def _bytes_each(lake: Lake | None) -> float:
    count = lake.count("trajectories") if lake else 0
    if lake is None or not count:
        return BYTES_PER_TRAJECTORY
    return max(0, lake.size_bytes() - BYTES_PER_POLICY * lake.count("policies")) / count


def _sandboxes(environment: Environment[Any]) -> str:
    found = [probe.check() for probe in environment.probes() if probe.required]
    needs = "".join(f", {check.detail} {check.hint}".rstrip() for check in found)
    return f"{environment.size} of {environment.name} at the same time{needs}"
