"""Measure any policy on any held-out seeds, without writing data that a promotion reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from environments.catalog import catalog, tasks_named
from models.policy import Policy
from models.vlm import VlmPolicy
from rollout.trajectory import FinishedTrajectory
from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.evaluation import Evaluation
from schemas.tables.trajectory import SPLIT_STARTS
from storage.lake import Lake
from tasks.evaluate import Summary, evaluation_of, evaluation_rows, explorer_policy, perform, summary
from tasks.running.boundary import boundary
from tasks.running.run import run_of
from tasks.shared.paths import lake_if_any
from tasks.shared.suite import made_named
from tasks.shared.weights import load_policy

DEFAULT_SEEDS = (SPLIT_STARTS["test"], SPLIT_STARTS["test"] + 50)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Result of one trajectory of one task and seed."""

    task: str
    seed: int
    success: bool | None
    attempt: int
    n_steps: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured success of a policy."""

    policy: str
    rates: Summary
    trajectories: Sequence[Attempt]


@boundary("measure")
def measure_policy(
    config: Config, policy: str, templates: list[str] | None, seeds: tuple[int, int] | None, attempts: int = 1
) -> Measured:
    """Measure the success of a policy by task and overall, with a 95 % interval.

    With one attempt, each seed has one greedy trajectory. With more attempts, trajectories are sampled at the
    temperature of collection (`Config.temperature`).

    Raises:
        UsageError: a task is unknown, or the seeds are training seeds.
        CheckpointError: the policy is unknown or broken.
    """
    return measured(config, _policy(config, policy), templates, seeds, attempts, lake_if_any(config))


def check_seeds(seeds: tuple[int, int]) -> tuple[int, int]:
    """Return the seeds. Raise UsageError for training seeds or an empty range."""
    first, end = seeds
    if not SPLIT_STARTS["validation"] <= first < end:
        raise UsageError(
            f"--seeds {first}:{end}: evaluation seeds start at 1,000,000 and must not be empty.",
            "Write, for example, 2000000:2000050.",
        )
    return seeds


def measured(
    config: Config,
    policy: Policy,
    templates: list[str] | None,
    seeds: tuple[int, int] | None,
    attempts: int = 1,
    lake: Lake | None = None,
) -> Measured:
    """Measure a loaded policy, also on made tasks of a lake. Raises the errors of `measure_policy`."""
    first, end = check_seeds(seeds or DEFAULT_SEEDS)
    whole = [task.task_id for task in catalog(config) if task.split == "train"] if templates is None else templates
    names, made = list(whole), made_named(config, lake)
    tasks = tasks_named(config, [name for name in names if name not in made])
    tasks += list({one.task_id: one for name in names if (one := made.get(name))}.values())
    planned = [
        evaluation_of(policy, task, seed, -1, "ad hoc", attempt, attempts)
        for task in tasks
        for seed in range(first, end)
        for attempt in range(attempts)
    ]
    rows: list[Evaluation] = []
    each: list[Attempt] = []
    task_ids = [task.task_id for task in tasks]

    def sink(records: list[FinishedTrajectory]) -> None:
        found = evaluation_rows(records, dict.fromkeys(task_ids, "ad hoc"))
        rows.extend(found)
        for row, record in zip(found, records, strict=True):
            number = record.trajectory.attempt % attempts
            each.append(Attempt(row.task_id, row.seed, row.success, number, row.n_steps))

    perform(config, policy, planned, sink, config.temperature if attempts > 1 else 0.0)
    return Measured(policy.version, summary(rows), each)


def _policy(config: Config, policy: str) -> Policy:
    if policy == "explorer":
        return explorer_policy(config)
    if Path(policy).is_dir():
        return VlmPolicy(Path(policy), config.policy, version=policy)
    return load_policy(config, run_of(config, create=False).lake, policy)
