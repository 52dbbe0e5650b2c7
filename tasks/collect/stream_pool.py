"""Keep the groups between collection and training: running groups, finished groups, and the next batch.

The state of the pool follows from the lake and the stream's folder, so a new process rebuilds it after a kill. The pool
makes a batch when the trainer has finished the previous batch and enough finished groups that can teach are waiting.
Groups that have waited longest come first.
"""

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from environments.catalog import catalog
from learning.algorithms.groups import Groups, GroupStep, members_of, teaches, train_on
from learning.algorithms.method import DataSource, method_of
from learning.algorithms.returns import one_outcome, rewarded
from learning.data.stream import StreamFolder, leave_out_stale, staleness, updates_of
from models.families.registry import reply_limit
from rollout.trajectory import ATTEMPTS, PlannedTrajectory
from schemas.config import Config
from schemas.config.training import GroupConfig
from schemas.tables.task import JUDGED
from schemas.tables.trajectory import Trajectory
from storage.catalog import answers
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe, pngs_trained_on, seed_of
from tasks.train.groups import outcomes_of, stored_successes

_SEEN = ["group_id", "task_id", "attempt", "success", "reward"]


class StreamPool:
    """Groups of one iteration that collects and trains at the same time. Safe to call from any thread.

    Args:
        config: config with the sizes and limits.
        lake: lake with the finished trajectories.
        recipe: version and parent of the candidate.
        folder: folder for the batches.
    """

    def __init__(self, config: Config, lake: Lake, recipe: PolicyRecipe, folder: StreamFolder) -> None:
        self._config, self._lake, self._recipe, self._folder = config, lake, recipe, folder
        self._group, self._stream = config.train.group, config.train.stream
        self._critic = method_of(config.train).source is DataSource.TRAJECTORIES
        """Whether the baseline is a critic's value instead of the other trajectories of the group."""
        self._lock = threading.RLock()
        self._worth: dict[str, dict[int, float | None]] = {}
        self._solved: set[str] = set()
        """Groups with a success."""
        self._scored = {task.task_id for task in catalog(config) if task.graded or task.verifier == JUDGED}
        self._begun: set[str] = set()
        self._ready: list[str] = []
        self._spent: set[str] = set()
        """Groups that are in a batch, or that cannot teach."""
        self._through: set[str] = set()
        """Groups that make room for new groups: the trainer has finished them, or never receives them."""
        self._batches = [list(notes["groups"]) for notes in folder.notes()]
        for groups in self._batches:
            self._begun.update(groups)
            self._spent.update(groups)
        self.published(folder.published())
        for row in lake.read("trajectories", _SEEN, {"iteration": recipe.iteration}).to_pylist():
            if row["group_id"] is not None:
                self._note(**row)

    def may_begin(self, one: PlannedTrajectory) -> bool | None:
        """Whether a trajectory may start; None for not yet.

        A trajectory may start if its group has started, or if there is room for another group. Room is for the groups
        of `stale` + 1 batches, as in AReaL (arXiv 2505.24298). Call this from one thread only.
        """
        assert one.group_id is not None
        if one.group_id not in self._begun:
            if len(self._begun) - len(self._through) >= (self._stream.stale + 1) * self._stream.groups:
                return None
            self._begun.add(one.group_id)
        return True

    def finished(self, rows: Sequence[Trajectory]) -> None:
        """Record finished trajectories that are in the lake, and make a batch if possible."""
        with self._lock:
            for row in rows:
                assert row.group_id is not None
                self._note(row.group_id, row.task_id, row.attempt, row.success, row.reward)
            self.feed()

    def published(self, updates: int) -> None:
        """Record the number of batches that the trainer has finished."""
        with self._lock:
            for groups in self._batches[:updates]:
                self._through.update(groups)

    def feed(self, least: int | None = None) -> bool:
        """Make the next batch if the trainer is free and enough groups wait. Return whether more batches may follow.

        Args:
            least: minimum number of groups of a batch; `train.stream.groups` if not given.
        """
        with self._lock:
            while len(self._ready) >= (least or self._stream.groups):
                if self._folder.published() < self._folder.batches():
                    return True
                groups, self._ready = self._ready[: self._stream.groups], self._ready[self._stream.groups :]
                self._spent.update(groups)
                if self._put(groups):
                    self._batches.append(groups)
                else:
                    self._through.update(groups)
            return False

    def close(self) -> None:
        """Stop collecting. Groups count as finished with the trajectories that they have."""
        with self._lock:
            for group in self._worth.keys() - self._spent - set(self._ready):
                self._judge(group)

    def numbers(self) -> Mapping[str, Any]:
        """Return the numbers of trained groups and steps, the ages of steps in updates, and the number of stale
        steps."""
        notes = self._folder.notes()
        total = {name: sum(one[name] for one in notes) for name in ("samples", "informative", "injected", "stale")}
        return {
            "updates": len(notes),
            "groups": len(self._worth),
            **total,
            "age_mean": sum(one["age_sum"] for one in notes) / max(1, total["samples"]),
            "age_max": max((one["age_max"] for one in notes), default=0),
        }

    def _note(self, group_id: str, task_id: str, attempt: int, success: bool | None, reward: float | None) -> None:
        self._begun.add(group_id)
        if success:
            self._solved.add(group_id)
        seen = self._worth.setdefault(group_id, {})
        slot, tried = attempt % self._group.size, attempt // self._group.size + 1
        if success is not None or tried >= ATTEMPTS:
            by_score = self._group.advantage == "pass1" and task_id in self._scored
            seen[slot] = reward if by_score or success is None else float(success)
        if len(seen) == self._group.size and group_id not in self._spent and group_id not in self._ready:
            self._judge(group_id)

    def _judge(self, group: str) -> None:
        """Queue a finished group for a batch, or drop the group."""
        worth = list(self._worth[group].values())
        solved = group in self._solved
        if any(reward is not None for reward in worth) if self._critic else can_teach(worth, self._group, solved):
            self._ready.append(group)
        else:
            self._spent.add(group)
            self._through.add(group)

    def _put(self, groups: Sequence[str]) -> bool:
        """Make a batch of these groups, unless all of its steps are too old or no group can teach."""
        recipe, updates = self._recipe, self._folder.batches()
        asked = {"iteration": recipe.iteration, "groups": list(groups)}
        rows = answers(self._lake, GroupStep, "training_groups", **asked)
        made = self._rollouts(rows, seed_of(self._config, recipe) + updates)
        ages = {
            (row.trajectory_id, row.step): staleness(
                updates_of(row.policy_version, recipe.version, recipe.parent), updates
            )
            for row in rows
            if row.step is not None
        }
        kept, stale = leave_out_stale(made.rollouts, ages, self._stream.stale, whole=self._critic)
        if not kept or (self._critic and one_outcome(kept)):
            return False
        notes = {
            "groups": list(groups),
            "samples": len(kept),
            "informative": made.informative,
            "injected": made.injected,
            "stale": stale,
            "age_sum": sum(rollout.age for rollout in kept),
            "age_max": max(rollout.age for rollout in kept),
        }
        shown = sorted({digest for rollout in kept for digest in rollout.screenshots})
        self._folder.put(kept, pngs_trained_on(self._lake, shown), notes)
        return True

    def _rollouts(self, rows: Sequence[GroupStep], seed: int) -> Groups:
        """Return the training data of these trajectories."""
        if not self._critic:
            members = members_of(rows, self._config.policy, self._group)
            stored = stored_successes(self._config, self._lake, self._recipe, rows)
            return train_on(members, stored, self._group, seed)
        members = outcomes_of(self._config, rows)
        rollouts = rewarded(members, self._config.train.ppo, reply_limit(self._config.policy))
        failed = sum(not math.isfinite(member.reward) for group in members.values() for member in group)
        return Groups(rollouts, len(members), len({rollout.group_id for rollout in rollouts}), 0, failed)


def can_teach(worth: Sequence[float | None], group: GroupConfig, solved: bool) -> bool:
    """Whether a finished group may give advantages.

    A group can teach if the configured advantage of a trajectory is not 0. A group without a success can also teach if
    a stored success may be added. With Pass@1, a group can also teach if replies near the length limit have a penalty.

    Args:
        worth: reward of each trajectory; None for an environment failure.
        group: settings of groups.
        solved: whether a trajectory of the group succeeded.
    """
    rewards = [math.nan if reward is None else reward for reward in worth]
    valid = [reward for reward in rewards if math.isfinite(reward)]
    shown = group.inject and not solved
    overlong = bool(group.overlong) and group.advantage == "pass1"
    return teaches(rewards, group) or (bool(valid) and (overlong or shown))
