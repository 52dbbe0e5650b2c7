"""Read the data of `train.method=ppo`: the trajectories of the iteration's groups, with their rewards.

With a critic, a trajectory is not compared with a group. Trajectories are still made in groups, for two reasons. The
policy makes them at `train.group.temperature`, with log probabilities, on tasks that it sometimes solves; VAPO (arXiv
2504.05118) gets worse with one sample per prompt. And groups that the critic does not learn from show when the critic
has settled.
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
        numbers=numbers,
        summary=f"{len(rollouts)} steps of {trajectories} trajectories",
        nothing=nothing if one_outcome(rollouts) else "",
    )


def outcomes_of(config: Config, rows: Sequence[GroupStep]) -> dict[str, list[Member]]:
    """Return trajectories by group, with the outcome as the only reward."""
    return members_of(rows, config.policy, config.train.group.model_copy(update={"overlong": 0}))
