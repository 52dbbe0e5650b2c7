"""Define the table `evaluations`: greedy trajectories of policy versions on held-out seeds."""

from schemas.failure import Boundary
from schemas.table import Flag, Float32, Int32, Int64, Row, Table, Text, between, not_null, unique

SUITES = ("suite", "held_out", "synthesized")
"""Suites: tasks that are collected, tasks that are only evaluated, and made tasks."""


class Evaluation(Row):
    """One held-out trajectory of one policy version."""

    policy_version: Text
    suite: Text
    """`suite` (suite tasks), `held_out` (held-out tasks), `synthesized` (made tasks), `synthesis` (tries of proposals),
    `general` (questions of `general.samples`, each a task), or the name of an ad-hoc call."""
    task_id: Text
    seed: Int64
    iteration: Int32
    success: Flag | None
    """Whether the trajectory succeeded; null for an environment failure, which no mean includes."""
    reward: Float32 | None
    n_steps: Int32
    failure_boundary: Boundary | None
    unparsable: Flag | None = None
    """Whether the last reply has no action; null if not recorded."""
    unread: Text | None = None
    """The last reply if it has no action, at most 200 characters of it; null if it has one, or if not recorded."""
    think_ms: Float32 | None = None
    """Mean milliseconds from a screen to the reply, over the steps."""
    final_phash: Text | None = None
    """Difference hash of the last screen, for held-out tasks (`curation/pictures.py`)."""


TABLE = Table(
    name="evaluations",
    row=Evaluation,
    key=("policy_version", "suite", "task_id", "seed"),
    partition_by=("iteration",),
    added={
        "unparsable": "NULL::BOOLEAN",
        "unread": "NULL::VARCHAR",
        "think_ms": "NULL::FLOAT",
        "final_phash": "NULL::VARCHAR",
    },
    expectations=(
        unique(("policy_version", "suite", "task_id", "seed")),
        *not_null("policy_version", "task_id", because="a score needs a policy and a task"),
        between("seed", 1_000_000, None, because="evaluation seeds are held out from training"),
        between("reward", -1.0, 1.0, because="raw rewards are normalised"),
    ),
)
