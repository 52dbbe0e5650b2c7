"""Implement `flywheel run --dry-run` and `flywheel retrain --dry-run`: the planned work, its time, place and disk
space."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.process import home
from common.text import counted, lasting
from environments.catalog import name_in
from environments.environment import Environment
from environments.registry import left_out, usable
from learning.algorithms.method import DataSource, Optimizer, method_of
from learning.engines.choice import is_small
from models.safe import weight_files
from schemas.config import Config, config_of
from schemas.config.training import EpochSection
from schemas.tables.stage import STAGES
from storage.lake import Lake
from tasks.preflight.preflight import options_read, planned
from tasks.retrain import trained_row
from tasks.running.budget import account, sentence, short
from tasks.running.console import out
from tasks.shared.paths import lake_if_any
from tasks.shared.policies import begins, champion_if_any, measured_ancestor
from tasks.shared.status import IterationStatus, begun_iterations
from tasks.shared.suite import tasks_of
from tasks.shared.trajectories import collected, measured_first, measured_suites, trajectories
from tasks.watch import last_trained, new_since

BYTES_PER_TRAJECTORY = 15_000
"""Lake bytes per trajectory of the laptop profile, used until the lake has trajectories."""
BYTES_PER_POLICY = 10_000_000
"""Bytes of a checkpoint of the laptop profile."""
COPIES = 3
"""Size of another model's checkpoint, as a multiple of the initial weights; it has weights and fp32 master weights."""
TRAINED = ("train", "evaluate", "promote")
"""Stages of a retraining."""
RECENT = 3
"""Number of last iterations whose mean time estimates the next iterations."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An unfinished iteration, which the run continues."""

    iteration: int
    after: str
    """The last finished stage."""
    trajectories: int
    """Number of stored trajectories of the iteration."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run."""

    tasks: list[str]
    """Tasks that are rolled out for data, including made tasks."""
    held_out: list[str]
    practice: list[str]
    iterations: int
    finished: int
    unfinished: Unfinished | None
    trajectories_each: int
    """Trajectories for data in an iteration, including those of practice pages."""
    practice_each: int
    trajectories: int
    """Remaining trajectories for data in the run."""
    evaluation_each: int
    """Maximum trajectories for measuring an iteration's candidate; its test may end earlier."""
    start: int
    """Trajectories before the first iteration, of the untrained policy and of the explorer."""
    training: str
    options: str
    seconds: float | None
    """Estimated seconds, from this lake's last iterations; None if none is finished."""
    megabytes: float
    budget: str
    """Remaining amounts of the limits, and consumption of the last iterations."""
    lake: str
    lake_is_new: bool
    work_folder: str
    sandboxes: list[str]


def plan_of(config: Config, iterations: int) -> Plan:
    """Makes the plan; opens the lake for reading if there is one, and writes nothing.

    Raises:
        FlywheelError: a run would be refused, since a part in the config cannot be used, a task does not exist, or the
            lake cannot be created.
    """
    for probe in planned(config):
        probe.examine()
    lake = lake_if_any(config)
    tasks = tasks_of(config, lake)
    named = {
        split: [name_in(config, task.task_id) for task in tasks if task.split == split]
        for split in ("train", "held_out", "practice")
    }
    amount = collected(config, tasks)
    begun = begun_iterations(lake) if lake else []
    finished = [one for one in begun if one.finished]
    unfinished = next((_unfinished(one) for one in reversed(begun) if not one.finished), None)
    left = max(0, iterations * amount.total - (unfinished.trajectories if unfinished else 0))
    return Plan(
        tasks=named["train"],
        held_out=named["held_out"],
        practice=named["practice"],
        iterations=iterations,
        finished=len(finished),
        unfinished=unfinished,
        trajectories_each=amount.total,
        practice_each=amount.practised,
        trajectories=left,
        evaluation_each=trajectories(measured_suites(config, lake)),
        start=0 if lake and lake.count("stages", {"stage": "prepare"}) else trajectories(measured_first(config)),
        training=_training(config),
        options=options_read(config, iterations),
        seconds=_seconds(finished, begun[-1] if unfinished else None, amount.total, iterations),
        megabytes=(left * _bytes_each(lake) + iterations * _bytes_of_policy(config)) / 1e6,
        budget=_budget(config, lake, iterations),
        lake=lake.uri if lake else config.lake.uri,
        lake_is_new=lake is None,
        work_folder=str(home()),
        sandboxes=[
            *(_sandboxes(environment) for environment in usable(config)),
            *(f"{name} is left out with its tasks: {why}" for name, why in left_out(config).items()),
        ],
    )


@dataclass(frozen=True, slots=True)
class RetrainPlan:
    """The plan of a retraining."""

    parent: str | None
    """The policy that the retraining continues; None for the first policy, made from `policy.base`."""
    like: str | None
    """The version whose training is repeated."""
    new_steps: int
    """Steps that were accepted since the last training."""
    new_decisions: int
    """Reviewers' decisions since the last training."""
    training: str
    evaluation: int
    """Maximum trajectories for measuring the candidate; its test may end earlier."""
    seconds: float | None
    """Estimated seconds, from this lake's last iterations; None if none is finished."""
    budget: str
    lake: str


def retrain_plan_of(config: Config, lake: Lake, like: str | None, train_only: bool = False) -> RetrainPlan:
    """Makes the plan of a retraining; writes nothing.

    Raises:
        FlywheelError: the retraining would be refused.
    """
    for probe in planned(config, trains_only=train_only):
        probe.examine()
    row = champion_if_any(lake)
    made_by, parent = config, row and row.policy_version
    if like:
        repeated, parent = trained_row(lake, like)
        made_by = config_of(json.loads(repeated.config))
    recent = [one for one in begun_iterations(lake) if one.finished][-RECENT:]
    steps, decisions = new_since(lake, last_trained(lake))
    return RetrainPlan(
        parent=parent,
        like=like,
        new_steps=steps,
        new_decisions=decisions,
        training=_training(made_by, begins(measured_ancestor(lake, parent)) if parent else True),
        evaluation=0 if train_only else trajectories(measured_suites(config, lake)),
        seconds=sum(one.stages_s.get(stage, 0.0) for one in recent for stage in TRAINED) / len(recent)
        if recent
        else None,
        budget=_budget(config, lake, 1),
        lake=lake.uri,
    )


def show_retrain_plan(plan: RetrainPlan) -> None:
    """Prints the plan."""
    new = f"{counted(plan.new_steps, 'new accepted step')}, {counted(plan.new_decisions, 'new decision')}"
    lines = {
        "from": f"{plan.parent}, as {plan.like} was made" if plan.like else plan.parent or "`policy.base`",
        "data": "the versions that it was made from" if plan.like else f"{new} since the last training",
        "training": plan.training,
        "evaluation": f"at most {plan.evaluation:,} trajectories" if plan.evaluation else "none",
        "time": _time(plan.seconds),
        "budget": plan.budget,
        "lake": plan.lake,
    }
    _show(lines)


def show_plan(plan: Plan) -> None:
    """Prints the plan."""
    practice = f", {plan.practice_each:,} of them of practice pages" if plan.practice_each else ""
    start = f", {plan.start:,} at the start" if plan.start else ""
    lines = {
        "tasks": f"{len(plan.tasks)} in the suite: {', '.join(plan.tasks)}",
        "held out": f"{len(plan.held_out)}, measured and never trained on: {', '.join(plan.held_out)}"
        if plan.held_out
        else "none",
        "so far": _stand(plan),
        "iterations": f"{plan.iterations} more",
        "trajectories": f"{plan.trajectories_each:,} an iteration{practice}; {plan.trajectories:,} in all",
        "training": plan.training,
        "options": plan.options,
        "evaluation": f"at most {plan.evaluation_each:,} trajectories an iteration{start}",
        "time": _time(plan.seconds),
        "budget": plan.budget,
        "lake": plan.lake + (" (will be made)" if plan.lake_is_new else ""),
        "report": "report/index.html in the " + ("work folder" if "://" in plan.lake else "lake"),
        "work folder": plan.work_folder,
        "sandboxes": "; ".join(plan.sandboxes),
        "disk": f"about {plan.megabytes:,.0f} MB more",
    }
    _show(lines)


def _show(lines: Mapping[str, str]) -> None:
    console = out()
    for name, text in lines.items():
        console.print(f"{name:<13} {text}", markup=False)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "not known before an iteration is finished on this machine"
    return f"about {lasting(seconds)}, by the last iterations of this lake"


def _unfinished(row: IterationStatus) -> Unfinished:
    done = [stage for stage in STAGES if stage in row.stages_s]
    return Unfinished(row.iteration, (done or ["its beginning"])[-1], row.trajectories)


def _stand(plan: Plan) -> str:
    done = f"{counted(plan.finished, 'iteration')} finished"
    one = plan.unfinished
    return f"{done}; iteration {one.iteration} continues after {one.after}" if one else done


def _seconds(
    finished: list[IterationStatus], unfinished: IterationStatus | None, amount: int, iterations: int
) -> float | None:
    """Estimates the seconds of some iterations from the stages' recent times, and `collect` from its trajectories."""
    if not (recent := finished[-RECENT:]):
        return None
    ratio = amount * len(recent) / max(1, sum(one.trajectories for one in recent))
    each = {
        stage: (ratio if stage == "collect" else 1.0)
        * sum(one.stages_s.get(stage, 0.0) for one in recent)
        / len(recent)
        for stage in {stage for one in recent for stage in one.stages_s}
    }
    between = sum(one.orchestration_s or 0.0 for one in recent) / len(recent)
    done = sum(each.get(stage, 0.0) for stage in unfinished.stages_s) if unfinished else 0.0
    return iterations * (sum(each.values()) + between) - done


def _training(config: Config, first: bool | None = None) -> str:
    """Describes the length of a training; the steps of a method that counts epochs depend on the number of samples.

    Args:
        config: the training's config.
        first: whether its parent is the first policy of the lake; None for the trainings of all iterations.
    """
    train, method = config.train, method_of(config.train)
    own = method.settings(train)
    if isinstance(own, EpochSection):
        refill = train.group.refill if method.source is DataSource.GROUPS and not train.stream.on else 0
        more = f"; groups that cannot teach are refilled, at most {counted(refill, 'time')}" if refill else ""
        return f"{train.method}: {own.epochs:g} epochs of the data it finds, {own.batch} samples a step{more}"
    optimizer: Optimizer = "muon" if is_small(str(config.policy.folder)) else "adamw"
    steps, most = (method.schedule(train, 0, optimizer, one).steps for one in (False, True))
    if first is not None:
        return f"{train.method}: {most if first else steps:,} optimiser steps"
    return f"{train.method}: {steps:,} optimiser steps an iteration" + (f", {most:,} in the first" * (most != steps))


def _budget(config: Config, lake: Lake | None, iterations: int) -> str:
    if not config.budget.limits:
        return "none set"
    if lake is None:
        return ", ".join(f"{short(allowed)} {what}" for what, allowed in config.budget.limits.items())
    return "; ".join(sentence(row, iterations) for row in account(lake, config.budget, iterations))


def _bytes_each(lake: Lake | None) -> float:
    """Computes lake bytes per trajectory only from tables; checkpoints are counted separately."""
    count = lake.count("trajectories") if lake else 0
    if lake is None or not count:
        return BYTES_PER_TRAJECTORY
    checkpoints = sum(lake.blobs.store.sizes("checkpoints").values())
    return max(0, lake.size_bytes() - checkpoints) / count


def _bytes_of_policy(config: Config) -> float:
    if not config.policy.given:
        return BYTES_PER_POLICY
    return COPIES * sum(file.stat().st_size for file in weight_files(config.policy.folder))


def _sandboxes(environment: Environment[Any]) -> str:
    found = [probe.check() for probe in environment.probes() if probe.required]
    needs = "".join(f", {check.detail} {check.hint}".rstrip() for check in found)
    return f"{environment.size} of {environment.name} at the same time{needs}"
