"""An annotation: a thought, a grounding target or a corrected action for one step, from a machine or a person."""

from typing import Literal

from schemas.table import Instant, Int32, Row, Table, Text, not_null, one_of, unique

Kind = Literal["thought", "grounding", "correction", "error_step"]


class Annotation(Row):
    """One annotation of one step; the recorded step itself is never changed."""

    annotation_id: Text
    trajectory_id: Text
    step: Int32
    iteration: Int32
    kind: Kind
    author: Text
    """`template` and `page` for the machine part, else a model's or a person's name."""
    thought: Text
    """The thought; for grounding, the name of the element asked for."""
    action: Text | None
    """Canonical JSON; for grounding, the click on the element's centre."""
    before: Text | None
    after: Text | None
    created_at: Instant


TABLE = Table(
    name="annotations",
    row=Annotation,
    key=("annotation_id",),
    partition_by=("iteration",),
    expectations=(
        unique(("annotation_id",)),
        *not_null("trajectory_id", "author", "thought", because="a label of unknown origin must not be trained on"),
        one_of("kind", ("thought", "grounding", "correction", "error_step"), because="the trainer knows these kinds"),
    ),
)
