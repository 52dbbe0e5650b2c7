"""Define the table `annotations`: thoughts, corrections, grounding targets and other labels of single steps."""

from typing import Literal, get_args

from schemas.table import Float64, Instant, Int32, Row, Table, Text, TextList, not_null, one_of, unique

Kind = Literal[
    "thought",
    "grounding",
    "correction",
    "reflection",
    "error_step",
    "inverse_dynamics",
    "transition",
    "video",
    "description",
    "caption",
    "question",
    "marks",
    "general",
    "general_held_out",
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
    """One annotation of one step. The recorded step itself never changes.

    A `correction` is an action that replaces the step's action. A `reflection` is an action that recovers from the
    error of the previous step. The stage `reflect` writes only corrections and reflections that succeeded in a sandbox.
    The desk stores a reviewer's correction before any sandbox has tried it.
    """

    annotation_id: Text
    trajectory_id: Text
    step: Int32
    iteration: Int32
    kind: Kind
    author: Text
    """Author of the annotation. `template`: a fixed text. `page`: the page's elements. `ocr`: text recognized from the
    pixels. `import`: an imported data set. `pixels`: the differences of two frames. `play`: the recorded screens and
    actions of the trajectory. `general`: the user's file (`general.samples`). Authors of thoughts can also be `rules`,
    `actre` (a model that saw the action) and `bootstrap` (a model that chose the same action by itself). Any other name
    is that of a model or a reviewer."""
    thought: Text
    """The thought. Grounding: name of the requested element. Transition: the change. Other perception kinds: the
    answer."""
    action: Text | None
    """An action in canonical JSON. Grounding: the click on the element's centre. Inverse dynamics: the action between
    the two screens. Perception: a click on the position that the question asks about."""
    before: Text | None
    """sha256 of a screenshot. Inverse dynamics and transitions: the screenshot before the action. `marks`: the
    screenshot without marks."""
    after: Text | None
    """sha256 of a screenshot. Inverse dynamics and transitions: the screenshot after the action. `marks`: the
    screenshot with marks. `general` and `general_held_out`: the image."""
    created_at: Instant
    patterns: TextList = []  # noqa: RUF012  (pydantic copies it)
    """Patterns of a thought, from `PATTERNS`."""
    version: Text | None = None
    """Policy version, model or rule that wrote a thought; null for a template and for a person. `general` and
    `general_held_out`: number and digest of the file's version."""
    question: Text | None = None
    """Question of `description`, `caption`, `question`, `marks`, `video`, `general` and `general_held_out`. The
    position of the click in `action` replaces `{place}`, in the coordinate format of the policy's family."""
    recording: Text | None = None
    """`video`: the recording that the question shows."""
    begin_s: Float64 | None = None
    """`video`: first second of the recording that is shown. Times in question and answer count from here."""
    end_s: Float64 | None = None
    """`video`: last second that is shown."""


TABLE = Table(
    name="annotations",
    row=Annotation,
    key=("annotation_id",),
    partition_by=("iteration",),
    added={
        "patterns": "[]::VARCHAR[]",
        "version": "NULL::VARCHAR",
        "question": "NULL::VARCHAR",
        "recording": "NULL::VARCHAR",
        "begin_s": "NULL::DOUBLE",
        "end_s": "NULL::DOUBLE",
    },
    expectations=(
        unique(("annotation_id",)),
        *not_null("trajectory_id", "author", "thought", because="a label of unknown origin must not be trained on"),
        *not_null("patterns", because="a thought without a pattern has an empty list"),
        one_of("kind", KINDS, because="the trainer supports these kinds"),
    ),
)
