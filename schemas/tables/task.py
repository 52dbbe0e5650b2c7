"""Define the table `tasks`, and the entries of tasks in a catalog."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Literal, get_args

from pydantic import Field

from schemas.config.section import Count, Section
from schemas.table import Flag, Float64, Int32, Row, Table, Text, TextList, between, not_null, one_of, unique

JUDGED = "judge"
"""Verifier of a task whose trajectories a judge scores."""
IMPORTED = "import"
"""Environment of imported tasks, which cannot be rolled out. Each import has one such task."""
Split = Literal["train", "held_out", "practice"]


class TaskEntry(Section):
    """An environment's entry for a task in its catalog."""

    instruction: str
    """Template of the instruction. The seed determines the text for each `{}`."""
    tags: tuple[str, ...] = ()
    max_steps: Count = 10
    """Maximum steps of a trajectory: about twice the steps of a careful user."""
    verifier: str = ""
    """A built-in verifier, `package.module:Verifier`, or `judge`; the environment's verifier if not set."""
    lineage: str | None = None
    deterministic: bool = True
    """Whether the same seed and actions always give the same screens; if not, failed trajectories are not corrected."""
    threshold: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Minimum reward of a success."""
    graded: bool = False
    """Compare trajectories of a group by the reward itself; if false, by success alone."""


class GuiTask(Row):
    """A task: a template of an instruction, with an environment and a verifier. A seed makes the task concrete."""

    task_id: Text
    """`environment/template`, for example `miniwob/click-button`."""
    environment: Text
    """Section of the config for the task's environment: `environments.NAME`."""
    template: Text
    instruction: Text
    """Template of the instruction. The trajectory has the concrete text."""
    tags: TextList
    split: Split
    """`held_out` tasks are evaluated and never rolled out for data; `practice` tasks are rolled out and never
    evaluated."""
    max_steps: Int32
    verifier: Text
    """Source of the reward: a built-in verifier, a dotted path `package.module:Verifier`, or `judge`."""
    lineage: Text | None = None
    """Origin of the task: a catalog and its version, or its parent task."""
    setup: Text | None = None
    """For a made task: JSON of its initial state and of its reward's checks (`schemas.world.Setup`)."""
    deterministic: Flag = True
    """Whether the same seed and actions always give the same screens, so that a trajectory can be replayed."""
    threshold: Float64 = 1.0
    """Minimum reward of a success."""
    graded: Flag = False
    """Compare trajectories of a group by the reward itself; if false, by success or by a judge's score."""


def short_names(task_ids: Iterable[str]) -> dict[str, str]:
    """Returns short names of tasks for messages: the template, or the whole id if two environments have the
    template."""
    known = set(task_ids)
    counts = Counter(task_id.rpartition("/")[2] for task_id in known)
    return {task_id: short if counts[short := task_id.rpartition("/")[2]] == 1 else task_id for task_id in known}


TABLE = Table(
    name="tasks",
    row=GuiTask,
    key=("task_id",),
    added={
        "setup": "NULL::VARCHAR",
        "deterministic": "TRUE",
        "threshold": "1.0::DOUBLE",
        "graded": "FALSE",
    },
    expectations=(
        unique(("task_id",)),
        *not_null(
            "task_id",
            "environment",
            "template",
            "verifier",
            because="a task that cannot be found or verified cannot be trained on",
        ),
        one_of("split", get_args(Split), because="held-out tasks must never be rolled out for data"),
        between("max_steps", 1, 1000, because="a trajectory needs a step limit"),
        between("threshold", 0.0, 1.0, because="rewards are at most 1, so a higher threshold is never reached"),
    ),
)
