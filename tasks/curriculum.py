"""Stage: choose the next rollouts, with reasons."""

from curation.curriculum import Mix, apportion, mix
from environments.catalog import catalog
from environments.registry import left_out
from learning.algorithms.method import DataSource, method_of
from schemas.config import Config
from schemas.tables.curriculum import CurriculumChoice
from schemas.tables.stage import PlainResult
from storage.catalog import answers
from tasks.running.iterations import IN_GROUPS
from tasks.running.run import Run
from tasks.running.stage import stage
from tasks.shared.suite import tasks_of
from tasks.shared.trajectories import collected
from tasks.train.groups import Weighed, choose_groups


@stage("curriculum")
def choose_tasks(run: Run, iteration: int) -> PlainResult:
    """Weigh the tasks by the results so far, and store each choice with its numbers and its reason."""
    config, lake = run.config, run.lake
    lake.append("tasks", catalog(config))  # a later config may have more tasks than the lake
    known, out = tasks_of(config, lake), left_out(config)
    without = "".join(f"; {name} is left out with its tasks: {why}" for name, why in out.items())
    tasks = [task.task_id for task in known if task.split == "train"]
    if config.train.in_groups:
        groups = choose_groups(config, lake, iteration, tasks)
        lake.append("curriculum", groups)
        text = f"most for {groups[0].task_id}: {groups[0].reason}{without}"
        total = sum(row.policy_trajectories for row in groups)
        return PlainResult(text=text, numbers={"trajectories": total, IN_GROUPS: True, "left_out": out})
    practises = method_of(config.train).source is not DataSource.REPLIES
    practice = [task.task_id for task in known if practises and task.split == "practice"]
    chosen = config.curriculum.model_dump(exclude={"hopeless_share"})
    weighed = answers(lake, Weighed, "curriculum", iteration=iteration, tasks=tasks, **chosen)
    amount = collected(config, known)
    counts = apportion({row.task_id: row.weight for row in weighed}, amount.chosen)
    share = amount.chosen / amount.total
    rows = [_choice(config, iteration, row, counts[row.task_id], share) for row in weighed]
    most = max(rows, key=lambda row: row.weight)
    lake.append("curriculum", rows + [_practice(config, iteration, task, amount.total) for task in practice])
    text = f"most for {most.task_id}: {most.reason}{without}"
    return PlainResult(text=text, numbers={"trajectories": amount.total, IN_GROUPS: False, "left_out": out})


def _practice(config: Config, iteration: int, task_id: str, total: int) -> CurriculumChoice:
    count = config.collect.practice_trajectories
    return CurriculumChoice(
        iteration=iteration,
        task_id=task_id,
        weight=count / total,
        explorer_trajectories=count,
        policy_trajectories=0,
        relay_trajectories=0,
        pool="practice",
        successes=0.0,
        failures=0.0,
        reason=f"practice: {count} screens that teach to read and to point, the same in every iteration",
    )


def _choice(config: Config, iteration: int, row: Weighed, count: int, share: float) -> CurriculumChoice:
    if method_of(config.train).source is DataSource.REPLIES:  # nothing else teaches
        return _row(iteration, row, share, Mix(0, count, 0))
    acts = iteration > 0 or config.policy.given
    policy_share = config.collect.policy_share if acts else 0.0
    relay_share = config.collect.relay_share if acts else 0.0
    least = config.curriculum.hopeless_share
    return _row(iteration, row, share, mix(count, row.pool, policy_share, relay_share, least, row.lead or 0.0))


def _row(iteration: int, row: Weighed, share: float, shares: Mix) -> CurriculumChoice:
    return CurriculumChoice(
        iteration=iteration,
        task_id=row.task_id,
        weight=row.weight * share,
        explorer_trajectories=shares.explorer,
        policy_trajectories=shares.policy,
        relay_trajectories=shares.relay,
        pool=row.pool,
        successes=row.successes,
        failures=row.failures,
        reason=row.reason,
    )
