"""Define the table `agreements`: a judge's agreement with verifiers or reviewers, by judge version and iteration.

`curation/agreement.py` uses these counts to decide if a judge is on probation. The counts leave out trajectories that
the judge was trained on.
"""

from typing import Literal, get_args

from schemas.table import Float32, Instant, Int32, Row, Table, Text, between, not_null, one_of, unique

Against = Literal["verifier", "people"]


class Agreement(Row):
    """Confusion counts of a judge's verdicts in one iteration. A positive is a trajectory that the judge accepts."""

    judge_version: Text
    """The `gate_version` of the judge's verdicts."""
    against: Against
    """Reference of the comparison: verifiers of the tasks, or reviewers."""
    iteration: Int32
    n: Int32
    true_positives: Int32
    false_positives: Int32
    """Trajectories that the judge accepted and the reference rejected: false accepts."""
    false_negatives: Int32
    true_negatives: Int32
    kappa: Float32 | None
    """Cohen's kappa of this iteration alone; null if undefined."""
    false_accept_rate: Float32 | None
    """False positives, as a share of the trajectories that the reference rejected; null if it rejected none."""
    created_at: Instant


TABLE = Table(
    name="agreements",
    row=Agreement,
    key=("judge_version", "against", "iteration"),
    partition_by=("iteration",),
    expectations=(
        unique(("judge_version", "against", "iteration")),
        *not_null("judge_version", because="counts without a judge have no meaning"),
        one_of("against", get_args(Against), because="a judge is compared with verifiers or people"),
        between("n", 1, None, because="a row needs at least one compared trajectory"),
        between("kappa", -1.0, 1.0, because="Cohen's kappa is in [-1, 1]"),
        between("false_accept_rate", 0.0, 1.0, because="a share is in [0, 1]"),
    ),
)
