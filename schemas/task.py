"""A task: what is asked, where it is played, who verifies it."""

from typing import Literal

from schemas.table import Int32, Row, Table, Text, TextList, between, not_null, one_of, unique

JUDGED = "judge"
"""The verifier of a task whose environment has none: a judge scores its plays."""
Split = Literal["train", "held_out", "practice"]


class GuiTask(Row):
    """An instruction template with its environment and verifier; a seed makes it one concrete instance."""

    task_id: Text
    """`environment/template`, for example `miniwob/click-button`."""
    environment: Text
    template: Text
    instruction: Text
    """The instruction as a template; the instance's own text is in the trajectory."""
    tags: TextList
    split: Split
    """`held_out` tasks are evaluated and never played for data; `practice` tasks are played and never evaluated."""
    max_steps: Int32
    verifier: Text
    """The environment, or `judge`."""
    lineage: Text | None = None
    """Where the task comes from: a catalog and its version, or the task it was made from."""


TABLE = Table(
    name="tasks",
    row=GuiTask,
    key=("task_id",),
    expectations=(
        unique(("task_id",)),
        *not_null(
            "task_id",
            "environment",
            "template",
            "verifier",
            because="a task that cannot be found or verified teaches nothing",
        ),
        one_of("split", ("train", "held_out", "practice"), because="held-out tasks must never be played for data"),
        between("max_steps", 1, 1000, because="a trajectory must end"),
    ),
)
