"""A policy version, its sources, and the course of the training that made it."""

import json
from typing import Literal, get_args

from schemas.table import Float64, Instant, Int32, Int64, Row, Table, Text, between, not_null, one_of, unique

Kind = Literal["initial", "iteration", "intermediate", "retrained", "merged", "adopted"]
Status = Literal["intermediate", "candidate", "champion", "held", "retired", "rejected"]


class PolicyVersion(Row):
    """One trained (or initial) policy."""

    policy_version: Text
    kind: Kind
    """The origin: the lake's preparation, an iteration, its continual training (`intermediate`), `flywheel retrain`,
    `flywheel merge`, or elsewhere, imported by `flywheel adopt`."""
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
    """Status when the row was written; `promotions` decides the current one. `intermediate`: continual training made it
    for the training after it; it is never measured nor promoted. `held`:
    the test did not decide, or something in the way of a decision has to be resolved. Why is in `promotions`."""
    created_at: Instant
    repeats: Text | None = None
    """The policy whose making it repeats (`flywheel retrain --like`)."""
    training_set: Text | None = None
    """Canonical JSON of digests of its training data: `samples`, `pictures`; null if not recorded."""

    @property
    def pins(self) -> dict[str, int]:
        """Returns the table versions that it was made from."""
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


class TrainingStep(Row):
    """Measures at one step of a policy's training, or since the step reported before: a point of its curves. Unknown
    measures are null."""

    policy_version: Text
    """Version of the policy in training; one whose training did not end has no row in `policies`."""
    step: Int32
    """Number of optimiser steps made."""
    iteration: Int32
    loss: Float64
    """Loss of this step's batch."""
    grad_norm: Float64 | None
    """Norm of the whole gradient, before it is clipped."""
    learning_rate: Float64 | None
    entropy: Float64 | None
    """Nats per token of the policy's distributions where it was trained."""
    kl: Float64 | None
    """An estimate (k3) of KL(policy || policy before this training; with a stream, before this batch), in nats per
    token."""
    clipped: Float64 | None
    """Share of the tokens whose loss is clipped."""
    advantage_std: Float64 | None
    """Standard deviation of the advantages, over tokens."""
    thought_tokens: Float64 | None
    """Mean length of the thoughts in the replies that are trained on, each encoded by itself."""
    reply_tokens: Float64 | None
    """Mean length of those replies, their end included."""
    truncated: Float64 | None
    """Share of the drawn replies that are as long as `policy.max_new_tokens` allows."""
    samples_per_s: Float64 | None
    """Since the training was started, without waiting for a stream."""
    tokens_per_s: Float64 | None
    """Tokens that the network read, of all processes together, by the time of the steps alone."""
    mfu: Float64 | None
    """Model FLOP/s utilisation: the policy's operations by the devices' peak in bf16."""
    peak_memory_gb: Float64 | None
    """Peak of the process with the highest, in 1e9 bytes: on its GPU since the point before, else in memory since it
    began."""
    staleness: Float64 | None
    """With a stream: mean age of the tokens, in updates between the weights that drew them and those they train."""
    mismatch: Float64 | None
    """Mean |log p of training - log p of the drawing|, in nats, of the tokens whose drawing is known."""
    other: Text
    """JSON of a method's own measures."""
    written_at: Instant


TRAINING = Table(
    name="training_steps",
    row=TrainingStep,
    key=("policy_version", "step"),
    partition_by=("iteration",),
    expectations=(
        unique(("policy_version", "step")),
        between("step", 1, None, because="a point is of a step that was made"),
        *(
            between(column, 0.0, 1.0, because="a share of tokens or replies", severity="warning")
            for column in ("clipped", "truncated", "mfu")
        ),
    ),
)
MEASURES = ("loss", *(field.name for field in TRAINING.schema if field.nullable))
"""The columns that are measures."""
