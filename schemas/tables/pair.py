"""A pair: a preferred and a rejected reply to the same context (Agent DPO, arXiv 2501.12326)."""

from typing import Literal, get_args

from schemas.table import Flag, Int32, Int64, Row, Table, Text, between, not_null, one_of, unique

PairKind = Literal["parting", "correction", "post_reflection"]
PAIR_KINDS: tuple[str, ...] = get_args(PairKind)


class Pair(Row):
    """One preference; both replies follow the same screenshot and history."""

    pair_id: Text
    trajectory_id: Text
    """The trajectory that the context and the preferred reply are from."""
    step: Int32
    iteration: Int32
    task_id: Text
    seed: Int64
    kind: PairKind
    """`parting`: two trajectories of one task and seed that were the same up to here, and only one succeeded.
    `correction`: the replacement of an error by a reflection or a person. `post_reflection`: the recovery from the
    error of the step before, in place of the recorded next action."""
    chosen: Text
    """The preferred reply: thought and action as text."""
    rejected: Text
    rejected_trajectory_id: Text | None
    """The trajectory that the rejected reply is from."""
    verified: Flag
    """Whether a verifier, not a judge, saw the preferred reply succeed and the rejected one fail."""


TABLE = Table(
    name="pairs",
    row=Pair,
    key=("pair_id",),
    partition_by=("iteration",),
    expectations=(
        unique(("pair_id",)),
        *not_null("chosen", "rejected", because="a preference needs both sides"),
        between("step", 0, 1000, because="the context is a step of a trajectory"),
        between("seed", 0, 999_999, because="held-out seeds must not be trained on"),
        one_of("kind", PAIR_KINDS, because="the trainer knows these kinds"),
    ),
)
