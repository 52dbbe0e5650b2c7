"""Define the table `pairs`: preferred and rejected replies to the same context (Agent DPO, arXiv 2501.12326)."""

from typing import Literal, get_args

from schemas.table import Flag, Int32, Int64, Row, Table, Text, between, not_null, one_of, unique

PairKind = Literal["parting", "correction", "post_reflection"]
PAIR_KINDS: tuple[str, ...] = get_args(PairKind)


class Pair(Row):
    """One preference between two replies to the same screenshot and history."""

    pair_id: Text
    trajectory_id: Text
    """Trajectory of the context and of the preferred reply."""
    step: Int32
    iteration: Int32
    task_id: Text
    seed: Int64
    kind: PairKind
    """Origin of the pair. `parting`: two trajectories of one task and seed that are equal before this step, of which
    only one succeeded. `correction`: an error, and its replacement by a reflection or a reviewer. `post_reflection`:
    the recorded action after an error, and a recovery from the error."""
    chosen: Text
    """The preferred reply: thought and action as text."""
    rejected: Text
    rejected_trajectory_id: Text | None
    """Trajectory of the rejected reply."""
    verified: Flag
    """Whether a verifier confirmed that the preferred reply succeeded and the rejected reply failed. False if a judge
    decided."""


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
        one_of("kind", PAIR_KINDS, because="the trainer supports these kinds"),
    ),
)
