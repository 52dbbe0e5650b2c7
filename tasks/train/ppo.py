"""Training data of `train.method=ppo`: the trajectories of the iteration's groups, each with its rewards.

A critic needs no group to compare a trajectory with. Trajectories are made in groups all the same: they are the
policy's own, at `train.group.temperature` and with their log probabilities, on tasks that it sometimes solves (VAPO,
arXiv 2504.05118, loses by sampling each prompt once). Groups that the critic does not learn from show when it has
settled.
"""

import math
from collections.abc import Sequence

from learning.algorithms.groups import GroupStep, Member, members_of
from learning.algorithms.returns import one_outcome, rewarded
from learning.data.rollouts import write_rollouts
from models.families.registry import reply_limit
from schemas.config import Config
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe, TrainingMaterial
from tasks.train.groups import group_steps


def ppo_material(config: Config, lake: Lake, recipe: PolicyRecipe) -> TrainingMaterial:
    """Return the iteration's trajectories without environment failures; nothing where all of them have one reward."""
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
        numbers=numbers,
        summary=f"{len(rollouts)} steps of {trajectories} trajectories",
        nothing=nothing if one_outcome(rollouts) else "",
    )


def outcomes_of(config: Config, rows: Sequence[GroupStep]) -> dict[str, list[Member]]:
    """Return trajectories by group with the outcome alone."""
    return members_of(rows, config.policy, config.train.group.model_copy(update={"overlong": 0}))
