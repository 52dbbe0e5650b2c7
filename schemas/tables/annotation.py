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
    """`template`, `page`, `ocr` (text read off the pixels) and `play` (data of the trajectory itself) for the machine
    part; of a thought also `rules`, `actre` (a model that was shown the action) and `bootstrap` (one that came to the
    same action by itself); else a model's or a person's name."""
    thought: Text
    """The thought; for grounding, the name of the element asked for; for a transition, the change; for the other
    perception kinds, the answer."""
    action: Text | None
    """Canonical JSON; for grounding, the click on the element's centre; for inverse dynamics, the action between the
    two screens; for perception, a click on the place that the question asks about."""
    before: Text | None
    """For inverse dynamics and transitions, sha256 of the screenshot before the action; for `marks`, of the screenshot
    without them."""
    after: Text | None
    """sha256 of the screenshot after the action; for `marks`, of the picture with the marks drawn on it."""
    created_at: Instant
    patterns: TextList = []  # noqa: RUF012  (pydantic copies it)
    """Of a thought: its patterns, out of `PATTERNS`."""
    version: Text | None = None
    """Of a thought: the policy version, model or rule that wrote it; null for a template and for a person."""
    question: Text | None = None
    """The question of `description`, `caption`, `question` and `marks`; `{place}` is replaced by the place that
    `action` clicks on, which every policy writes in its own way."""


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
        one_of("kind", KINDS, because="the trainer knows these kinds"),
    ),
)
