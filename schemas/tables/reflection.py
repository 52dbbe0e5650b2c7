"""Define the table `reflections`: assessments of single steps (reflective filtering, OpenCUA, arXiv 2508.09123).

The fields have the names of AgentNet. In AgentNet, `last_step` is the previous step. In this table it is the step of
the row: the flags describe the action of step `step`, judged by the screen after it.
"""

from schemas.table import Flag, Instant, Int32, Row, Table, Text, between, not_null, unique

RULES = "rules"
"""Author of reflections by the rules of the filter."""


class Reflection(Row):
    """Assessment of one step by one version of an author. Another author or version adds another row."""

    trajectory_id: Text
    step: Int32
    """Number of the assessed step."""
    author: Text
    """`rules` for the rules of the filter, else the name of a judge, a model or a reviewer."""
    version: Text
    """Version of the rules with their options, or of the model and its prompt. For a reviewer: a text that
    distinguishes the reviewer's assessments."""
    iteration: Int32
    """Iteration of the trajectory."""
    last_step_correct: Flag | None
    """Whether the action was correct; null if the author gives no answer."""
    last_step_redundant: Flag | None
    """Whether the step was redundant: it changed nothing, or its change was undone. Null if the author gives no
    answer."""
    reflection: Text
    """Reason for the assessment, in one or more sentences."""
    created_at: Instant
    """Time of the reflection. The newest reflection of an author about a step counts."""


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
