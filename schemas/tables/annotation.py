"""An annotation: a thought, a grounding target or a corrected action for one step, from a machine or a person."""

from typing import Literal, get_args

from schemas.table import Instant, Int32, Row, Table, Text, TextList, not_null, one_of, unique

Kind = Literal[
    "thought",
    "grounding",
    "correction",
    "reflection",
    "error_step",
    "inverse_dynamics",
    "transition",
    "description",
    "caption",
    "question",
    "marks",
]
KINDS: tuple[str, ...] = get_args(Kind)
Pattern = Literal[
    "task_decomposition", "long_term_consistency", "milestone_recognition", "trial_and_error", "reflection"
]
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)
"""Patterns of reasoning in thoughts (UI-TARS, arXiv 2501.12326, section 4.4)."""


PERCEPTION: tuple[Kind, ...] = ("description", "caption", "question", "marks", "transition")
"""UI-TARS's perception tasks (arXiv 2501.12326, section 4.2): element description, dense caption, question answering,
set-of-mark, state-transition caption."""


class Annotation(Row):
    """One annotation of one step; the recorded step itself is never changed.

    A `correction` is the right action in the step's place; a `reflection` the right action there after the error of the
    step before. Those that the stage `reflect` writes were seen to succeed; a person's are stored as the person enters
    them.
    """

    annotation_id: Text
    trajectory_id: Text
    step: Int32
    iteration: Int32
    kind: Kind
    author: Text
    """Author of the annotation. Machine authors are `template`, `page`, `ocr` (text recognized from the pixels) and
    `play` (data of the trajectory itself). Thoughts also have `rules`, `actre` (a model that saw the action) and
    `bootstrap` (a model that chose the same action by itself). Any other name is a model's or a person's."""
    thought: Text
    """The thought. Grounding: name of the requested element. Transition: the change. Other perception kinds: the
    answer."""
    action: Text | None
    """Canonical JSON. Grounding: the click on the element's centre. Inverse dynamics: the action between the two
    screens. Perception: a click on the place that the question asks about."""
    before: Text | None
    """sha256 of a screenshot. Inverse dynamics and transitions: the one before the action. `marks`: the one without
    marks."""
    after: Text | None
    """sha256 of the screenshot after the action; for `marks`, of the picture with the marks drawn on it."""
    created_at: Instant
    patterns: TextList = []  # noqa: RUF012  (pydantic copies it)
    """Patterns of a thought, from `PATTERNS`."""
    version: Text | None = None
    """Policy version, model or rule that wrote a thought; null for a template and for a person."""
    question: Text | None = None
    """Question of `description`, `caption`, `question` and `marks`. `{place}` is replaced by the place that `action`
    clicks on, in the coordinates' format of each policy."""


TABLE = Table(
    name="annotations",
    row=Annotation,
    key=("annotation_id",),
    partition_by=("iteration",),
    added={"patterns": "[]::VARCHAR[]", "version": "NULL::VARCHAR", "question": "NULL::VARCHAR"},
    expectations=(
        unique(("annotation_id",)),
        *not_null("trajectory_id", "author", "thought", because="a label of unknown origin must not be trained on"),
        *not_null("patterns", because="a thought without a pattern has an empty list"),
        one_of("kind", KINDS, because="the trainer supports these kinds"),
    ),
)
