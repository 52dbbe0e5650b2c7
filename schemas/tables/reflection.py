"""A reflection: a judgement of one step in retrospect (reflective filtering, OpenCUA, arXiv 2508.09123).

The fields have AgentNet's names. There `last_step` is the step that the reflection looks back at; here it is the row's
own step: the flags are about the action of step `step`, as the screen after it shows it.
"""

from schemas.table import Flag, Instant, Int32, Row, Table, Text, between, not_null, unique

RULES = "rules"
"""Author of the reflections of the filter's gates."""


class Reflection(Row):
    """Judgement of one step by one version of an author; a second opinion is a second row."""

    trajectory_id: Text
    step: Int32
    """Number of the judged step."""
    author: Text
    """`rules` for the filter's gates, else a judge's, a model's or a person's name."""
    version: Text
    """Version of the rules with their options, or of the model and its prompt. For a person, a text that distinguishes
    the person's own judgements."""
    iteration: Int32
    """Iteration of the trajectory."""
    last_step_correct: Flag | None
    """Whether the action was right; null if the author gives no answer."""
    last_step_redundant: Flag | None
    """Whether the step was superfluous: it changed nothing, or its change was undone. Null if the author gives no
    answer."""
    reflection: Text
    """Reason for the judgement, in a sentence or more."""
    created_at: Instant
    """Time of the reflection. An author's newest reflection of a step counts."""


TABLE = Table(
    name="reflections",
    row=Reflection,
    key=("trajectory_id", "step", "author", "version"),
    partition_by=("iteration",),
    expectations=(
        unique(("trajectory_id", "step", "author", "version")),
        *not_null("trajectory_id", "author", "reflection", because="a finding needs a step, an author and a reason"),
        between("step", 0, 1000, because="the column is the number of a step"),
    ),
)
