"""Stage: what is played next, and why."""

from typing import Any

from environments.catalog import catalog
from learning.curriculum import apportion, mix
from schemas.config import Config
from schemas.curriculum import CurriculumChoice
from storage.catalog import ask
from storage.lake import Lake
from tasks.stage import stage


@stage("curriculum")
def choose_tasks(config: Config, lake: Lake, iteration: int) -> dict[str, Any]:
    """DuckDB weighs the tasks by what was learned so far; each choice is stored with its numbers and its reason."""
    tasks = [task.task_id for task in catalog(config) if task.split == "train"]
    chosen = config.curriculum
    weighed = ask(
        lake,
        "curriculum",
        iteration=iteration,
        tasks=tasks,
        method=chosen.method,
        forgetting=chosen.forgetting,
        floor=chosen.floor,
    ).to_pylist()
    total = config.collect.trajectories_per_task * len(tasks)
    counts = apportion({row["task_id"]: row["weight"] for row in weighed}, total)
    rows = [_choice(config, iteration, row, counts[row["task_id"]]) for row in weighed]
    lake.append("curriculum", rows)
    most = max(rows, key=lambda row: row.weight)
    return {"trajectories": total, "say": f"most for {most.task_id}: {most.reason}"}


def _choice(config: Config, iteration: int, row: dict[str, Any], count: int) -> CurriculumChoice:
    trained = iteration > 0
    policy_share = config.collect.policy_share if trained else 0.0
    relay_share = config.collect.relay_share if trained else 0.0
    shares = mix(count, row["pool"], policy_share, relay_share)
    return CurriculumChoice(
        iteration=iteration,
        task_id=row["task_id"],
        weight=row["weight"],
        explorer_trajectories=shares.explorer,
        policy_trajectories=shares.policy,
        relay_trajectories=shares.relay,
        pool=row["pool"],
        successes=row["successes"],
        failures=row["failures"],
        reason=row["reason"],
    )
