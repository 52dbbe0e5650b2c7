"""Choose, plan and read groups of trajectories (one task, one seed, one policy version) for training.

`train.method=ppo` reads the trajectories of the iteration's groups, with their rewards. With a critic, a trajectory is
not compared with a group. Trajectories are still made in groups, for two reasons. The policy makes them at
`train.group.temperature`, with log probabilities, on tasks that it sometimes solves; VAPO (arXiv 2504.05118) gets worse
with one sample per prompt. And groups that the critic does not learn from show when the critic has settled.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from curation.curriculum import apportion, seeds
from curation.selection import noted_screens, shortest_way
from learning.algorithms.groups import DemonstrationStep, GroupStep, Member, demonstration, members_of, train_on
from learning.algorithms.returns import one_outcome, rewarded
from learning.data.files import Rollout, write_rollouts
from learning.data.slices import slices
from models.families.registry import reply_limit
from rollout.trajectory import PlannedTrajectory
from schemas.config import Config
from schemas.failure import FlywheelError
from schemas.tables.curriculum import CurriculumChoice, Pool
from schemas.tables.task import GuiTask
from schemas.tables.trajectory import trajectory_id
from storage.catalog import answers
from storage.lake import Lake
from tasks.running.run import Run
from tasks.shared.material import PolicyRecipe, TrainingMaterial, seed_of
from tasks.shared.reviews import Standing
from tasks.shared.weights import draws_slices, policy_family


@dataclass(frozen=True, slots=True)
class Weighed:
    """A weighed task, with the columns of `storage/queries/curriculum.sql` and `groups.sql`."""

    task_id: str
    successes: float
    failures: float
    pool: Pool
    weight: float
    reason: str
    posterior: float | None = None
    """Posterior mean of the policy's success; None if trajectories are made in groups."""
    lead: float | None = None
    """The policy's success divided by the explorer's; None if trajectories are made in groups."""


def choose_groups(config: Config, lake: Lake, iteration: int, tasks: Sequence[str]) -> list[CurriculumChoice]:
    """Distribute the groups of an iteration over tasks, and return a row with a reason for each task.

    Raises:
        FlywheelError: no task has a success rate between 0 and `train.group.highest`.
    """
    chosen = config.train.group
    asked = {"iteration": iteration, "tasks": list(tasks), "forgetting": config.curriculum.forgetting}
    steering = chosen.model_dump(include={"highest", "size", "rise", "rising"})
    rows = answers(lake, Weighed, "groups", **asked, **steering)
    weights = {row.task_id: row.weight for row in rows if row.weight > 0}
    if not weights:
        reasons = "; ".join(f"{row.task_id}: {row.reason}" for row in rows)
        raise FlywheelError(
            f"Nothing to learn from in groups: {reasons}.",
            "Train with train.method=sft first, or change suite.tasks or train.group.highest.",
        )
    groups = {**{row.task_id: 0 for row in rows}, **apportion(weights, chosen.groups)}
    return [_choice(config, iteration, row, groups[row.task_id]) for row in rows]


def planned_groups(run: Run, iteration: int, task: GuiTask, count: int, version: str) -> list[PlannedTrajectory]:
    """Plan `count` trajectories of a task in whole groups.

    The number of a retry is larger by the size of a group than the number of the failed attempt.
    """
    config, lake_id = run.config, run.lake.lake_id
    size = config.train.group.size
    return [
        PlannedTrajectory(
            lake_id=lake_id,
            run_id=run.run_id,
            iteration=iteration,
            task=task,
            seed=seed,
            policy="policy",
            policy_version=version,
            attempt=attempt,
            stride=size,
            group_id=trajectory_id(lake_id, iteration, task.task_id, seed, "group", version, 0),
            temperature=config.temperature,
        )
        for seed in seeds(config.seed, iteration, task.task_id, "group", count // size)
        for attempt in range(size)
    ]


def group_material(config: Config, lake: Lake, recipe: PolicyRecipe) -> TrainingMaterial:
    """Return the groups of the iteration with their advantages."""
    chosen = config.train.group
    rows, doubted = group_steps(config, lake, recipe)
    members = members_of(rows, config.policy, chosen)
    stored = stored_successes(config, lake, recipe, rows)
    made = train_on(members, stored, chosen, seed_of(config, recipe))
    rollouts = made.rollouts
    numbers = {
        "samples": len(rollouts),
        "groups": made.groups,
        "informative": made.informative,
        "injected": made.injected,
        "environment_failures": made.environment_failures,
    }
    alike = f"nothing to learn from: all advantages are 0 in each of {made.groups} groups"
    nothing = alike if made.groups else doubted or "nothing to learn from: no groups were rolled out in this iteration"
    return TrainingMaterial(
        write=lambda path, _: write_rollouts(path, rollouts),
        samples=len(rollouts),
        draws=_draws(config, lake, recipe, rollouts),
        numbers=numbers,
        summary=f"{len(rollouts)} steps of {made.informative} of {made.groups} groups with advantages",
        nothing="" if rollouts else nothing,
    )


def group_steps(config: Config, lake: Lake, recipe: PolicyRecipe) -> tuple[list[GroupStep], str]:
    """Return the steps of the iteration's groups, and the reason why some groups are left out (empty if none is).

    Groups that a judge on probation scored are left out. Its accepted trajectories are held back, so training would
    only compare the scores of rejected trajectories.
    """
    rows = answers(lake, GroupStep, "training_groups", recipe.pins, iteration=recipe.iteration, groups=None)
    standing = Standing(lake, config.judge)
    doubted = {row.group_id: row.judge for row in rows if row.judge and standing.probation(row.judge)}
    if not doubted:
        return rows, ""
    because = standing.probation(next(iter(doubted.values())))
    left = f"nothing to learn from: {len(doubted)} groups are of a judge on probation ({because})"
    return [row for row in rows if row.group_id not in doubted], left


def _choice(config: Config, iteration: int, row: Weighed, groups: int) -> CurriculumChoice:
    chosen = config.train.group
    return CurriculumChoice(
        iteration=iteration,
        task_id=row.task_id,
        weight=groups / chosen.groups,
        explorer_trajectories=0,
        policy_trajectories=groups * chosen.size,
        relay_trajectories=0,
        pool=row.pool,
        successes=row.successes,
        failures=row.failures,
        reason=f"{row.reason}; {groups} groups of {chosen.size}",
    )


def stored_successes(
    config: Config, lake: Lake, recipe: PolicyRecipe, trajectories: Sequence[GroupStep]
) -> Callable[[str, int], Member | None]:
    """Return a function that finds a stored success of a task: with the given seed if possible, else the newest.

    If `train.group.inject` is not set, the function finds none.
    """
    asked = {
        "tasks": sorted({row.task_id for row in trajectories}),
        "seeds": sorted({row.seed for row in trajectories}),
    }
    if not config.train.group.inject:
        return lambda task, seed: None
    family = policy_family(config, lake, recipe.parent)
    steps: dict[str, list[DemonstrationStep]] = {}
    for row in answers(lake, DemonstrationStep, "demonstrations", recipe.pins, **asked):
        steps.setdefault(row.trajectory_id, []).append(row)
    by_seed: dict[tuple[str, int | None], list[DemonstrationStep]] = {}
    for stored in steps.values():
        by_seed.setdefault((stored[0].task_id, stored[0].seed), stored)
        by_seed.setdefault((stored[0].task_id, None), stored)

    def find(task: str, seed: int) -> Member | None:
        stored = by_seed.get((task, seed)) or by_seed.get((task, None))
        if not stored:
            return None
        kept = shortest_way(noted_screens(stored))
        return demonstration([stored[index] for index in kept], family)

    return find


def ppo_material(config: Config, lake: Lake, recipe: PolicyRecipe) -> TrainingMaterial:
    """Return the iteration's trajectories without environment failures; no data if all have the same reward."""
    rows, doubted = group_steps(config, lake, recipe)
    groups = outcomes_of(config, rows)
    rollouts = rewarded(groups, config.train.ppo, reply_limit(config.policy))
    made = [member for group in groups.values() for member in group]
    trajectories = len({rollout.trajectory_id for rollout in rollouts})
    nothing = (
        f"nothing to learn from: one reward for all {trajectories} trajectories"
        if trajectories
        else doubted or "nothing to learn from: no trajectories of the policy in this iteration"
    )
    numbers = {
        "samples": len(rollouts),
        "plays": trajectories,
        "groups": len(groups),
        "successes": len({rollout.trajectory_id for rollout in rollouts if rollout.correct}),
        "environment_failures": sum(not math.isfinite(member.reward) for member in made),
    }
    return TrainingMaterial(
        write=lambda path, _: write_rollouts(path, rollouts),
        samples=len(rollouts),
        draws=_draws(config, lake, recipe, rollouts),
        numbers=numbers,
        summary=f"{len(rollouts)} steps of {trajectories} trajectories",
        nothing=nothing if one_outcome(rollouts) else "",
    )


def _draws(config: Config, lake: Lake, recipe: PolicyRecipe, rollouts: Sequence[Rollout]) -> int | None:
    """Count the slices of the rollouts, if the training draws slices."""
    return len(slices(rollouts, config.policy.context_rule)) if draws_slices(config, lake, recipe.parent) else None


def outcomes_of(config: Config, rows: Sequence[GroupStep]) -> dict[str, list[Member]]:
    """Return trajectories by group, with the outcome as the only reward."""
    return members_of(rows, config.policy, config.train.group.model_copy(update={"overlong": 0}))
