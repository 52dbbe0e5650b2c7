"""Define the table `teacher_scores`: log probabilities of the policy's replies under a served teacher."""

from schemas.table import FloatList, Instant, Int32, Row, Table, Text, between, matches, not_null, unique


class TeacherScore(Row):
    """Score of one reply by one teacher, for `train.method=opd`. A stored reply is not scored again."""

    trajectory_id: Text
    step: Int32
    request: Text
    """SHA-256 of the teacher's name, the tokens of prompt and reply, and the prompt's pictures."""
    iteration: Int32
    teacher: Text
    """Name of the teacher (`train.opd.model`)."""
    logprobs: FloatList
    """Log probabilities of the reply's tokens; empty if the teacher's server read other tokens than were sent."""
    created_at: Instant


TABLE = Table(
    name="teacher_scores",
    row=TeacherScore,
    key=("trajectory_id", "step", "request"),
    partition_by=("iteration",),
    expectations=(
        unique(("trajectory_id", "step", "request")),
        *not_null("teacher", "logprobs", because="a score of an unknown teacher must not be trained on"),
        matches("request", r"^[0-9a-f]{64}$", because="scores are found by the sha256 of their request"),
        between("step", 0, 1000, because="a trajectory has at most 1,000 steps"),
    ),
)
