"""Define the table `stages`: the finished stages of every iteration. A restarted run resumes after the last of them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from schemas.table import Float32, Instant, Int32, Metrics, Row, Table, Text, between, not_null, unique

_IterationStage = Literal[
    "curriculum", "collect", "filter", "reflect", "think", "annotate", "quality", "ct", "train", "evaluate", "recheck",
    "promote"
]  # fmt: skip
StageName = Literal["prepare", "import", "synthesize", _IterationStage]
STAGES: tuple[StageName, ...] = get_args(_IterationStage)
"""Stages of every iteration, in order. `prepare` runs once, before the first iteration. `import` comes first in an
import. `synthesize` comes first in an iteration if `synthesis.on` is set."""
PREPARE = -1
"""Iteration number of the stage `prepare`."""
IMPORTS = -2
"""Iteration number of the first import. Further imports count down from it, and iterations count up from 0, so the
numbers never collide."""


def label_of(iteration: int) -> str:
    """Returns the name of an iteration for messages: `iteration 3`, or `import 1` for the first import."""
    return f"iteration {iteration}" if iteration > IMPORTS else f"import {1 + IMPORTS - iteration}"


def chronological(iteration: int) -> tuple[bool, int]:
    """Returns the sort key of an iteration: imports come before iterations, and older imports before newer imports."""
    return (True, iteration) if iteration > IMPORTS else (False, -iteration)


HEADLINE = "say"
"""Key of the headline in a stored result."""


class StageResult(BaseModel, ABC):
    """Result of a stage. Its fields are numbers; `str` returns a headline for the user.

    Each stage defines a subclass in its own module. The lake stores only fields that the stage sets.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    @abstractmethod
    def __str__(self) -> str: ...

    @property
    def stored(self) -> Metrics:
        """Returns the numbers and the headline in the form that the lake stores."""
        return {**self.model_dump(exclude_unset=True), HEADLINE: str(self)}

    @property
    def event(self) -> tuple[str, Metrics] | None:
        """Returns the name and payload of a special event; None if the stage emits `flywheel.STAGE.completed`."""
        return None


class PlainResult(StageResult):
    """Result of a skipped stage, or of a stage whose result has no fixed set of fields."""

    text: str = Field(exclude=True)
    """The headline."""
    numbers: Mapping[str, Any] = Field(default={}, exclude=True)
    """Further numbers by name, as JSON values."""

    def __str__(self) -> str:
        return self.text

    @property
    def stored(self) -> Metrics:
        """Returns the numbers by name, with the headline."""
        return {**self.numbers, **super().stored}


class Stage(Row):
    """A finished stage with its duration and result."""

    iteration: Int32
    stage: StageName
    run_id: Text
    started_at: Instant
    wall_s: Float32
    result: Text
    """Canonical JSON of `StageResult.stored`."""


TABLE = Table(
    name="stages",
    row=Stage,
    key=("iteration", "stage"),
    partition_by=("iteration",),
    expectations=(
        unique(("iteration", "stage")),
        *not_null("result", because="status and report read the result"),
        between("wall_s", 0.0, None, because="a duration is not negative"),
    ),
)
