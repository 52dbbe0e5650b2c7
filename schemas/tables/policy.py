"""Define the tables `policies` and `training_steps`: policy versions, and the measures of their trainings."""

import json
from typing import Literal, get_args

from schemas.table import Float64, Instant, Int32, Int64, Row, Table, Text, between, not_null, one_of, unique

Kind = Literal["initial", "iteration", "intermediate", "retrained", "merged", "adopted", "pretrained"]
Status = Literal["intermediate", "candidate", "champion", "held", "retired", "rejected"]


class PolicyVersion(Row):
    """One policy version, trained or initial."""

    policy_version: Text
    kind: Kind
    """Origin of the policy. `initial`: the stage `prepare`. `iteration`: the training of an iteration. `intermediate`:
    the continual training of an iteration. `retrained`, `merged`, `adopted`: the command `flywheel retrain`, `flywheel
    merge` or `flywheel adopt`. `pretrained`: a base of `flywheel pretrain train`, which is never promoted."""
    parent: Text | None
    iteration: Int32
    """Iteration that trained the policy; for other origins, the latest iteration when the policy was made."""
    method: Text
    checkpoint: Text
    """Name of a Hugging Face model directory below the lake's `blobs`, so that a lake can be moved."""
    data_versions: Text
    """Canonical JSON: version of every table that the policy was trained from."""
    config: Text
    """The resolved config as canonical JSON."""
    code: Text
    """Commit of the code."""
    seed: Int64
    metrics: Text
    status: Status
    """Status when the row was written; `promotions` has the current status. `intermediate`: made by continual training
    as the start of the next training, never evaluated or promoted. `held`: the test did not decide, or a problem must
    be fixed before the decision; `promotions` has the reason."""
    created_at: Instant
    repeats: Text | None = None
    """Policy whose training was repeated (`flywheel retrain --like`)."""
    training_set: Text | None = None
    """Canonical JSON: digests of the training data, as `samples` and `pictures`; null if not recorded."""

    @property
    def pins(self) -> dict[str, int]:
        """Returns the table versions that the policy was made from."""
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
        *not_null("checkpoint", "data_versions", "config", because="a policy must be reproducible"),
        one_of("kind", get_args(Kind), because="status, report and promotion select policies by kind"),
        one_of("status", get_args(Status), because="promotion supports these states"),
    ),
)


class TrainingStep(Row):
    """Measures of one training step of a policy, or of all steps since the previous row; null if unknown."""

    policy_version: Text
    """Version of the policy in training. An unfinished training has no row in `policies`."""
    step: Int32
    """Optimiser steps so far."""
    iteration: Int32
    loss: Float64
    """Loss of the step's batch."""
    grad_norm: Float64 | None
    """Norm of the whole gradient before clipping."""
    learning_rate: Float64 | None
    entropy: Float64 | None
    """Entropy of the policy on the trained tokens, in nats per token."""
    kl: Float64 | None
    """Estimate (k3) of KL(policy || policy before this training), in nats per token. With a stream: KL to the policy
    before this batch."""
    clipped: Float64 | None
    """Share of the tokens whose loss is clipped, in [0, 1]."""
    advantage_std: Float64 | None
    """Standard deviation of the advantages over tokens."""
    thought_tokens: Float64 | None
    """Mean tokens of the thoughts in the trained replies; each thought is encoded alone."""
    reply_tokens: Float64 | None
    """Mean tokens of the trained replies, the end token included."""
    truncated: Float64 | None
    """Share of the sampled replies that reach `policy.max_new_tokens`, in [0, 1]."""
    samples_per_s: Float64 | None
    """Samples per second since the start of the training, without the time spent waiting for a stream."""
    tokens_per_s: Float64 | None
    """Tokens per second that the network read, over all processes. Only the time of the steps counts."""
    mfu: Float64 | None
    """Model FLOP/s utilisation, in [0, 1]: the policy's operations divided by the devices' peak in bf16."""
    peak_memory_gb: Float64 | None
    """Peak memory of the process with the highest peak, in 1e9 bytes. On a GPU: GPU memory since the previous row.
    Else: host memory since the process started."""
    staleness: Float64 | None
    """With a stream: mean age of the tokens, as the number of updates since the weights that sampled them."""
    mismatch: Float64 | None
    """Mean |training log p - behaviour log p|, in nats, over tokens with known behaviour log probabilities."""
    other: Text
    """JSON of further measures of the method."""
    written_at: Instant


TRAINING = Table(
    name="training_steps",
    row=TrainingStep,
    key=("policy_version", "step"),
    partition_by=("iteration",),
    expectations=(
        unique(("policy_version", "step")),
        between("step", 1, None, because="steps are counted from 1"),
        *(
            between(column, 0.0, 1.0, because="a share is in [0, 1]", severity="warning")
            for column in ("clipped", "truncated", "mfu")
        ),
    ),
)
MEASURES = ("loss", *(field.name for field in TRAINING.schema if field.nullable))
"""Columns that are measures."""
