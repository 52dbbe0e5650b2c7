"""Stage: greedy, from pixels only, on held-out seeds and held-out tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

from curation.intervals import mean_interval
from environments.catalog import catalog
from models.policy import EXPLORERS, Policy
from rollout.actor import Actor
from rollout.runner import Sink, roll_out_all
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import Config
from schemas.tables.evaluation import Evaluation
from schemas.tables.task import GuiTask, Split
from schemas.tables.trajectory import SPLIT_STARTS
from schemas.text import counted
from storage.lake import Lake
from tasks.shared.console import bar
from tasks.shared.policies import candidate_of
from tasks.shared.run import Run
from tasks.shared.stage import stage
from tasks.shared.suite import made_tasks
from tasks.shared.weights import load_policy

SeedsOf = Sequence[tuple[GuiTask, Sequence[int]]]
SUITES = ("suite", "held_out", "synthesized")
"""The collected tasks of the config, those that are never collected, and the made ones."""


@stage("evaluate", retries=1)
def evaluate_candidate(run: Run, iteration: int) -> dict[str, Any]:
    """The candidate on the suite's held-out seeds, and on the tasks it was never trained on."""
    config, lake = run.config, run.lake
    candidate = candidate_of(lake, iteration)
    if candidate is None:
        return {"say": "nothing was trained"}
    return measure_suites(config, lake, load_policy(config, lake, candidate.policy_version), iteration)


def measure_suites(config: Config, lake: Lake, policy: Policy, iteration: int) -> dict[str, Any]:
    """Evaluates one policy on the suite and on the held-out tasks; returns the means with their intervals."""
    chosen = config.evaluate
    suite = validation_seeds(config, "train", chosen.seeds)
    unseen = validation_seeds(config, "held_out", chosen.held_out_seeds)
    plans: dict[str, SeedsOf] = {"suite": suite, "held_out": unseen}
    if made := made_tasks(config, lake):
        plans["synthesized"] = [(task, suite[0][1]) for task in made]
    rows = measure(config, lake, policy, plans, iteration)
    numbers, rest, new = (summary([row for row in rows if row.suite == name]) for name in SUITES)
    text = f"success {rate_text(numbers)} over {counted(len(suite), 'task')}"
    if unseen:
        text += f"; never trained on: {rate_text(rest)} over {len(unseen)}"
    if made:
        text += f"; made tasks: {rate_text(new)} over {len(made)}"
    more = {"synthesized": new} if made else {}
    return {"policy": policy.version, "suite": numbers, "held_out": rest, **more, "say": text}


def measure(
    config: Config, lake: Lake, policy: Policy, plans: Mapping[str, SeedsOf], iteration: int
) -> list[Evaluation]:
    """Rolls out what the lake does not hold yet of this policy's evaluation, by suite; returns all rows of these
    suites."""
    where = {"policy_version": policy.version, "suite": list(plans)}
    done = {(row.suite, row.task_id, row.seed) for row in lake.rows(Evaluation, where)}
    planned, suites = [], {}
    for suite, plan in plans.items():
        for task, seeds in plan:
            suites[task.task_id] = suite
            left = [seed for seed in seeds if (suite, task.task_id, seed) not in done]
            planned += [evaluation_of(policy, task, seed, iteration, lake.lake_id) for seed in left]

    def sink(records: list[FinishedTrajectory]) -> None:
        lake.append("evaluations", evaluation_rows(records, suites))

    perform(config, policy, planned, sink)
    return lake.rows(Evaluation, where)


def perform(
    config: Config, policy: Policy, planned: Sequence[PlannedTrajectory], sink: Sink, temperature: float = 0.0
) -> None:
    """Rolls out, greedily unless a temperature is given, and hands what is finished to `sink`; nothing is recorded."""
    with Actor(policy, temperature) as actor:
        roll_out_all(config, planned, lambda _: [actor], sink, bar, "evaluate")


def evaluation_rows(records: Sequence[FinishedTrajectory], suites: Mapping[str, str]) -> list[Evaluation]:
    """Evaluation rows of finished trajectories; `suites` says which suite a task belongs to."""
    return [
        Evaluation(
            policy_version=made.policy_version,
            suite=suites[made.task_id],
            task_id=made.task_id,
            seed=made.seed,
            iteration=made.iteration,
            success=made.success,
            reward=made.reward,
            n_steps=made.n_steps,
            failure_boundary=made.failure_boundary,
        )
        for made in (record.trajectory for record in records)
    ]


def validation_seeds(config: Config, split: Split, count: int) -> SeedsOf:
    """The tasks of a split with their first `count` held-out seeds: the same for every policy."""
    start = SPLIT_STARTS["validation"]
    return [(task, range(start, start + count)) for task in catalog(config) if task.split == split]


def explorer_policy(config: Config) -> Policy:
    """The policy without a model that everything is compared with."""
    return EXPLORERS.class_of(config.collect.explorer)()


def summary(rows: Sequence[Evaluation]) -> dict[str, Any]:
    """Mean success over tasks with its 95 % interval, and per task; environment failures left out."""
    by_task: dict[str, list[bool]] = {}
    for row in rows:
        if row.success is not None:
            by_task.setdefault(row.task_id, []).append(row.success)
    if not by_task:
        return {"success": None, "ci": [None, None], "tasks": {}}
    interval = mean_interval(
        [sum(outcomes) for outcomes in by_task.values()], [len(outcomes) for outcomes in by_task.values()]
    )
    tasks = {
        task: {"success": sum(outcomes) / len(outcomes), "n": len(outcomes)}
        for task, outcomes in sorted(by_task.items())
    }
    return {"success": interval.mean, "ci": [interval.low, interval.high], "tasks": tasks}


def rate_text(measured: Mapping[str, Any]) -> str:
    """A summary's mean and interval for people; `unknown` where every one was an environment failure."""
    if measured["success"] is None:
        return "unknown"
    return "{:.3f} ({:.3f} to {:.3f})".format(measured["success"], *measured["ci"])


def evaluation_of(
    policy: Policy, task: GuiTask, seed: int, iteration: int, lake_id: str, attempt: int = 0, attempts: int = 1
) -> PlannedTrajectory:
    """One of so many attempts of a policy at a task and seed; only the evaluation of it is kept."""
    return PlannedTrajectory(
        lake_id=lake_id,
        run_id=lake_id,
        iteration=iteration,
        task=task,
        seed=seed,
        policy=policy.kind,
        policy_version=policy.version,
        attempt=attempt,
        stride=attempts,
    )
