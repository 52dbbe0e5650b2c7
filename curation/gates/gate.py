"""Defines gates, the filter's checks of stored trajectories, which are pure functions with versions.

A custom gate derives from `Gate` and is named by its dotted path in `filter.gates`; built-in gates are found in the
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
    """The first wrong step, if the gate finds it."""
    route: Route | None = None
    """Route of a rejected trajectory's data, if it differs from the gate's."""


@dataclass(frozen=True, slots=True)
class GateContext:
    """Facts for a gate in addition to the trajectory and its steps."""

    judged: Verdict | None = None
    """The judge's verdict, if the task has no verifier and the filter uses the judge."""
    looks: Looks = field(default_factory=dict[str, int])
    """Difference hashes of the trajectory's screens."""
    details: Details = unseen
    """Returns a screen's finer hash by its sha256; None if the picture is not available."""
    task: TaskFacts = field(default_factory=TaskFacts)
    """Properties of the task's successes."""
    accepted: Accepted = field(default_factory=Accepted)
    """Accepted trajectories for comparison."""
    probation: str = ""
    """Reason why the judge of `judged` is on probation; empty if it is not."""
    by_judge: bool = False
    """Whether the task is in the suite and has no verifier."""
    words: int = 0
    """Number of the trajectory's steps that are only words (`acting_steps`), which gates do not see."""


class Gate(ABC, Generic[Options]):
    """One check of a trajectory.

    Args:
        options: the gate's own section, `filter.options.<name>`.
    """

    name: ClassVar[str]
    rule: ClassVar[str] = "1"
    """Version of the rule; increase it whenever a trajectory may get another result."""
    section: ClassVar[type[Section]] = Section
    """Class of the options; a gate with own options overrides it."""
    sends_to: ClassVar[Route] = "ct"
    """Route of a rejected trajectory's data."""
    given: ClassVar[bool] = False
    """Whether the filter uses verdicts that are in the lake before it runs."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def version(self) -> str:
        """Return the rule's version, with a hash of options that differ from the defaults."""
        changed = self.options.model_dump_json(exclude_defaults=True)
        return self.rule if changed == "{}" else f"{self.rule}-{hashlib.sha256(changed.encode()).hexdigest()[:8]}"

    @abstractmethod
    def check(self, trajectory: Trajectory, steps: Sequence[Step], context: GateContext) -> GateResult | None:
        """Check one trajectory, given its stored steps in order; return None if the gate does not apply."""


def succeeded(trajectory: Trajectory, context: GateContext) -> bool:
    """Whether a trajectory is a success by the judge or, if no judge was asked, by the verifier."""
    return context.judged.passed if context.judged is not None else bool(trajectory.success)
