"""Define the table `trajectories`: episodes of a task with a seed, each by one policy version."""

import hashlib
from typing import Literal, get_args

from schemas.failure import BOUNDARIES, Boundary
from schemas.table import Flag, Float32, Instant, Int32, Int64, Row, Table, Text, between, not_null, one_of, unique

Termination = Literal["done", "finished", "call_user", "max_steps", "truncated", "failure"]
"""Reason for the end. `max_steps`: this project's limit of steps, where the episode could continue. `truncated`: a
limit of the environment, where it could not."""
Route = Literal["sft", "ct", "rl", "quarantine", "none"]
SeedSplit = Literal["train", "validation", "test"]
IMPORT = "import"
"""The `policy` of imported trajectories and the `actor` of their steps."""


class RecordedTrajectory(Row):
    """The outcome of one episode, collected for data or rolled out for an evaluation."""

    trajectory_id: Text
    iteration: Int32
    run_id: Text
    task_id: Text
    seed: Int64
    split: SeedSplit
    group_id: Text | None = None
    """Group of trajectories with the same task, seed and policy version."""
    attempt: Int32
    policy: Text
    """Actor of the trajectory. `explorer`, `policy`: this actor alone. `relay`: the policy, then the explorer from the
    state reached. `correction`: replayed steps of another trajectory, then a proposer. `person`: a reviewer who
    accepted or replaced the policy's proposal at each step. `import`: an actor of another project."""
    policy_version: Text
    """Policy version at the start of the iteration. If weights change within an iteration, the steps have their own
    versions."""
    instruction: Text
    n_steps: Int32
    reward: Float32 | None
    """Raw reward of the verifier in [-1, 1], or the judge's score in [0, 1]; null after an environment failure."""
    success: Flag | None
    """Whether the raw reward reaches the task's `threshold`, or the score reaches `judge.threshold`. Null after an
    environment failure, or if an imported record has no outcome."""
    termination: Termination
    failure_boundary: Boundary | None = None
    failure_reason: Text | None = None
    sampling: Text
    """Canonical JSON of how actions were sampled: `temperature`, `relay_step`, and, if a policy acted, `asked`: the
    keys of `policy` that shaped the prompts."""
    started_at: Instant
    wall_s: Float32
    continues: Text | None = None
    """For a correction: the trajectory whose first steps were replayed."""
    replayed: Int32 = 0
    """Number of replayed steps. Replayed steps are context of later steps, and are not training targets."""
    extra: Text | None = None
    """For an imported trajectory: JSON of the record's data that has no column, by format."""


class Trajectory(RecordedTrajectory):
    """The outcome of one episode that was collected for data."""


TABLE = Table(
    name="trajectories",
    row=Trajectory,
    key=("trajectory_id",),
    partition_by=("iteration",),
    added={"continues": "NULL::VARCHAR", "replayed": "0::INTEGER", "extra": "NULL::VARCHAR"},
    expectations=(
        unique(("trajectory_id",)),
        *not_null(
            "trajectory_id", "task_id", "policy_version", because="data of unknown origin must not be trained on"
        ),
        between("n_steps", 0, 1000, because="a trajectory has at most 1,000 steps"),
        between("replayed", 0, 1000, because="a trajectory has at most 1,000 steps"),
        between("reward", -1.0, 1.0, because="raw rewards are normalised; beyond that the verifier is broken"),
        one_of("failure_boundary", BOUNDARIES, because="a failure has exactly one known boundary"),
        one_of("split", get_args(SeedSplit), because="a seed outside the splits may leak into evaluation"),
        between("seed", 0, 999_999, because="collected seeds are training seeds: 1,000,000 and up are held out"),
        between("wall_s", 0.0, 600.0, because="more than ten minutes suggest a stuck sandbox", severity="warning"),
    ),
)

SPLIT_STARTS: dict[SeedSplit, int] = {"train": 0, "validation": 1_000_000, "test": 2_000_000}
"""First seed of each split. `train`: data. `validation`: decisions about promotion. `test`: published numbers."""


def split_of(seed: int) -> SeedSplit:
    """Returns the split of a seed."""
    if seed >= SPLIT_STARTS["test"]:
        return "test"
    return "validation" if seed >= SPLIT_STARTS["validation"] else "train"


def trajectory_id(
    lake_id: str, iteration: int, task_id: str, seed: int, policy: str, policy_version: str, attempt: int
) -> str:
    """Derives the id of a trajectory from its request, so that a repeated rollout writes the same key."""
    name = f"{lake_id}|{iteration}|{task_id}|{seed}|{policy}|{policy_version}|{attempt}"
    return hashlib.sha256(name.encode()).hexdigest()[:24]
