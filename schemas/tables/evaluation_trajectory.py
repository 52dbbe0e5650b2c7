"""Define tables of the trajectories that evaluations keep: their outcomes, steps and screenshots.

They are on held-out seeds, so no data for training comes from them. The tables for data (`trajectories`, `steps`,
`screenshots`) refuse these rows: the classes differ. `evaluate.keep_failures` and `evaluate.keep_successes` choose the
kept trajectories.
"""

from schemas.table import Blob, Int32, Row, Table, Text, between, matches, not_null, unique
from schemas.tables.step import RecordedStep
from schemas.tables.trajectory import RecordedTrajectory


class EvaluationTrajectory(RecordedTrajectory):
    """The outcome of one episode of an evaluation."""

    suite: Text
    """Suite of the evaluation, as in `evaluations`."""


class EvaluationStep(RecordedStep):
    """One step of an evaluation: a screen, and the reply to it. Its tokens are not stored."""


class EvaluationScreenshot(Row):
    """One distinct picture of evaluations, stored once."""

    sha256: Text
    """sha256 of the PNG that the policy saw."""
    iteration: Int32
    """First iteration that stored this picture."""
    picture: Blob
    """The same pixels as lossless WebP; as the PNG itself if WebP cannot store its size."""


TABLE = Table(
    name="evaluation_trajectories",
    row=EvaluationTrajectory,
    key=("trajectory_id",),
    partition_by=("iteration",),
    expectations=(
        unique(("trajectory_id",)),
        between("seed", 1_000_000, None, because="evaluation seeds are held out from training"),
    ),
)
STEPS = Table(
    name="evaluation_steps",
    row=EvaluationStep,
    key=("trajectory_id", "step"),
    partition_by=("iteration",),
    expectations=(
        unique(("trajectory_id", "step")),
        matches("screenshot", r"^[0-9a-f]{64}$", because="screenshots are found by their sha256"),
    ),
)
SCREENSHOTS = Table(
    name="evaluation_screenshots",
    row=EvaluationScreenshot,
    key=("sha256",),
    partition_by=("iteration",),
    expectations=(
        unique(("sha256",)),
        *not_null("picture", because="a missing picture breaks every step that refers to it"),
    ),
)
