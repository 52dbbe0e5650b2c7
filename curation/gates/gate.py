"""The interface of the filter: a gate is one check of a stored trajectory, a pure function with its own version.

A user's gate derives from `Gate` and is named by its dotted path in `filter.gates`; the built-in gates are found the
same way.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from curation.gates.facts import Accepted, Details, Looks, TaskFacts, unseen
from schemas.config.section import Section
from schemas.tables.step import Step
from schemas.tables.trajectory import Route, Trajectory
from schemas.tables.verdict import Verdict

Options = TypeVar("Options", bound=Section)


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate's result for one trajectory."""

    passed: bool
    reason: str
    score: float | None = None
    error_step: int | None = None
    """The first wrong step, where the gate finds it."""
    route: Route | None = None
    """Route of a rejected trajectory's data, if not the gate's own."""


@dataclass(frozen=True, slots=True)
class GateContext:
    """Facts for a gate in addition to the trajectory and its steps."""

    judged: Verdict | None = None
    """The judge's verdict, where the trajectory's task has no verifier and the filter asks the judge."""
    looks: Looks = field(default_factory=dict[str, int])
    """Difference hashes of its screens."""
    details: Details = unseen
    """Returns a screen's finer hash by its sha256; None where the picture is not at hand."""
    task: TaskFacts = field(default_factory=TaskFacts)
    """Properties of its task's successes."""
    accepted: Accepted = field(default_factory=Accepted)
    """Accepted trajectories to compare it with."""
    probation: str = ""
    """Reason why that verdict's judge is on probation; empty if it is not."""
    by_judge: bool = False
    """Whether the trajectory's task is one of the suite without a verifier."""
    words: int = 0
    """Number of its steps without an action that are context by their import's record; gates do not see them."""


class Gate(ABC, Generic[Options]):
    """One check of a trajectory.

    Args:
        options: the gate's own section, `filter.options.<name>`.
    """

    name: ClassVar[str]
    rule: ClassVar[str] = "1"
    """Version of the rule; raise it whenever the same trajectory may get another result."""
    section: ClassVar[type[Section]] = Section
    """Class of the options; a gate with options of its own overrides it."""
    sends_to: ClassVar[Route] = "ct"
    """Route of a rejected trajectory's data."""
    given: ClassVar[bool] = False
    """Whether its verdicts are in the lake before the filter runs, which then uses them."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def version(self) -> str:
        """The rule's version, with a hash of the changed options where they are not the defaults."""
        changed = self.options.model_dump_json(exclude_defaults=True)
        return self.rule if changed == "{}" else f"{self.rule}-{hashlib.sha256(changed.encode()).hexdigest()[:8]}"

    @abstractmethod
    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult | None:
        """Check one trajectory, given its stored steps in order; return None where the gate does not apply."""


def succeeded(trajectory: Trajectory, context: GateContext) -> bool:
    """Whether the judge, or the verifier where no judge was asked, decided that a trajectory is a success."""
    return context.judged.passed if context.judged is not None else bool(trajectory.success)
