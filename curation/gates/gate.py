"""The seam of the filter: a gate is one check of a stored trajectory, a pure function with a version of its own.

A gate that is brought from outside derives from `Gate` and is named by its dotted path in `filter.gates`; the built-in
ones are found the same way.
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
    """What a gate finds of one trajectory."""

    passed: bool
    reason: str
    score: float | None = None
    error_step: int | None = None
    """The first step that went wrong, where the gate can tell."""
    route: Route | None = None
    """Where the data of what is turned away goes, if not where the gate's goes."""


@dataclass(frozen=True, slots=True)
class GateContext:
    """What a gate may know in addition to the trajectory and its steps."""

    judged: Verdict | None = None
    """The judge's verdict, where the trajectory's task has no verifier and the filter asks the judge."""
    looks: Looks = field(default_factory=dict[str, int])
    """Hashes of what its screens look like."""
    details: Details = unseen
    """Looks closely at a screen, by its sha256; None where its picture is not at hand."""
    task: TaskFacts = field(default_factory=TaskFacts)
    """What is known of its task's successes."""
    accepted: Accepted = field(default_factory=Accepted)
    """The accepted trajectories that it can be held against."""
    probation: str = ""
    """Why the judge of that verdict is on probation; empty if it is not."""
    by_judge: bool = False
    """Whether the trajectory's task is one of the suite that has no verifier."""


class Gate(ABC, Generic[Options]):
    """One check.

    Args:
        options: the gate's own section, `filter.options.<name>`.
    """

    name: ClassVar[str]
    rule: ClassVar[str] = "1"
    """The version of the rule; raise it whenever the same trajectory may get another result."""
    section: ClassVar[type[Section]] = Section
    """What the options must be; a gate with options of its own names theirs."""
    sends_to: ClassVar[Route] = "ct"
    """Where the data of what it turns away goes."""
    given: ClassVar[bool] = False
    """Whether its verdicts are in the lake before the filter runs, which then goes by them."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def version(self) -> str:
        """The rule's version and, where the options are not the default ones, a hash of what differs."""
        changed = self.options.model_dump_json(exclude_defaults=True)
        return self.rule if changed == "{}" else f"{self.rule}-{hashlib.sha256(changed.encode()).hexdigest()[:8]}"

    @abstractmethod
    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult | None:
        """The result for one trajectory, given its stored steps in order; None where the gate has nothing to say."""


def succeeded(trajectory: Trajectory, context: GateContext) -> bool:
    """Whether the judge, or the verifier where none was asked, calls a trajectory a success."""
    return context.judged.passed if context.judged is not None else bool(trajectory.success)
