"""A stage: one finished part of one iteration. Its row is the commit mark a restart goes on from."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from schemas.table import Float32, Instant, Int32, Metrics, Row, Table, Text, between, not_null, unique

_Turned = Literal[
    "curriculum", "collect", "filter", "reflect", "think", "annotate", "quality", "ct", "train", "evaluate", "recheck",
    "promote"
]  # fmt: skip
StageName = Literal["prepare", "import", "synthesize", _Turned]
STAGES: tuple[StageName, ...] = get_args(_Turned)
"""The stages of an iteration, in order; `prepare` is the one stage before the first iteration, and an imported data set
begins with `import`, and an iteration with `synthesize` where tasks are made."""
PREPARE = -1
"""The iteration number under which the lake's preparation is recorded."""
IMPORTS = -2
"""Iteration number of the first imported data set; those of further ones go down from it.

Iterations count up from 0, so neither ever takes a number of the other's.
"""


def label_of(iteration: int) -> str:
    """Names an iteration for people: `iteration 3`, or `import 1` of the first imported data set."""
    return f"iteration {iteration}" if iteration > IMPORTS else f"import {1 + IMPORTS - iteration}"


def turn(iteration: int) -> tuple[bool, int]:
    """Returns the sort key of iterations for filtering and comparison: imports, the oldest first, then the others."""
    return (True, iteration) if iteration > IMPORTS else (False, -iteration)


HEADLINE = "say"
"""Key of the headline in a stored result."""


class StageResult(BaseModel, ABC):
    """Result of a stage's work: its fields are its numbers, and `str` formats its headline for people.

    A stage defines its class next to its work. Fields that it does not set are not stored.
    """

    model_config = ConfigDict(frozen=True)

    @abstractmethod
    def __str__(self) -> str: ...

    @property
    def stored(self) -> Metrics:
        """Returns the numbers and the headline, as the lake stores them."""
        return {**self.model_dump(exclude_unset=True), HEADLINE: str(self)}

    @property
    def event(self) -> tuple[str, Metrics] | None:
        """Returns name and payload of the stage's own event; None for `flywheel.STAGE.completed`."""
        return None


class PlainResult(StageResult):
    """Result of a stage that was skipped, or whose numbers have open names."""

    text: str = Field(exclude=True)
    """The headline."""
    numbers: Mapping[str, Any] = Field(default={}, exclude=True)
    """JSON values."""

    def __str__(self) -> str:
        return self.text

    @property
    def stored(self) -> Metrics:
        """Returns the numbers by their names, and the headline."""
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
