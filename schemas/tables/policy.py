"""A policy version and what it was made from."""

import json
from typing import Literal, get_args

from schemas.table import Instant, Int32, Int64, Row, Table, Text, not_null, one_of, unique

Kind = Literal["initial", "iteration", "intermediate", "retrained", "merged", "adopted"]
Status = Literal["intermediate", "candidate", "champion", "held", "retired", "rejected"]


class PolicyVersion(Row):
    """One trained (or initial) policy; exactly one row is the champion."""

    policy_version: Text
    kind: Kind
    """What made it: the lake's preparation, an iteration, its continual training (`intermediate`), `flywheel retrain`,
    `flywheel merge`, or nobody here: `flywheel adopt` brought it in."""
    parent: Text | None
    iteration: Int32
    """The iteration that trained it; of others the latest there was."""
    method: Text
    checkpoint: Text
    """A Hugging Face model directory, by its name below the lake's `blobs`: a lake that is moved stays whole."""
    data_versions: Text
    """Canonical JSON: the version of every table it was trained from."""
    config: Text
    """The resolved config as canonical JSON."""
    code: Text
    """The code's commit."""
    seed: Int64
    metrics: Text
    status: Status
    """`intermediate`: continual training made it for the training after it; it is never measured nor promoted. `held`:
    the test did not decide, or something in the way of a decision has to be resolved. Why is in `promotions`."""
    created_at: Instant
    repeats: Text | None = None
    """The policy whose making it repeats (`flywheel retrain --like`)."""
    training_set: Text | None = None
    """Canonical JSON of digests of what it was trained on: `samples`, `pictures`; null where nobody noted it."""

    @property
    def pins(self) -> dict[str, int]:
        """The table versions that it was made from."""
        return json.loads(self.data_versions or "{}")


TABLE = Table(
    name="policies",
    row=PolicyVersion,
    key=("policy_version",),
    added={
        "kind": "CASE WHEN iteration < 0 THEN 'initial' WHEN status = 'intermediate' THEN 'intermediate' "
        "WHEN method = 'merge' THEN 'merged' WHEN policy_version LIKE 'retrained-%' THEN 'retrained' "
        "ELSE 'iteration' END",
        "repeats": "NULL::VARCHAR",
        "training_set": "NULL::VARCHAR",
    },
    expectations=(
        unique(("policy_version",)),
        *not_null(
            "checkpoint", "data_versions", "config", because="a policy that cannot be made again cannot be trusted"
        ),
        one_of("kind", get_args(Kind), because="status, report and promotion ask for kinds, not for names"),
        one_of("status", get_args(Status), because="promotion knows these"),
    ),
)
