"""The seam between a finished trajectory and a model that scores it, for tasks whose environment has no verifier.

A judge sees what UI-TARS-2's outcome reward model sees (arXiv 2509.02544): the whole text and the last screens. It
answers with a score in [0, 1]. A judge that fails has no opinion: that is an environment failure, never a bad score.
It scores batches, of trajectories that have just ended or that rest in the lake.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar, final

from schemas.config.section import Section

Options = TypeVar("Options", bound=Section)


@dataclass(frozen=True, slots=True)
class Case:
    """A finished trajectory as a judge sees it."""

    instruction: str
    replies: tuple[str, ...]
    """What the policy answered, step by step."""
    screens: tuple[bytes, ...]
    """PNG of the last screens, oldest first, the one at the end last."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's answer; `score` is None if it failed, and `reason` then says how."""

    score: float | None
    reason: str


class JudgeFailure(Exception):
    """The judge gave no answer, or none that is a score; `again` says whether it is worth asking once more."""

    def __init__(self, reason: str, again: bool = True) -> None:
        self.again = again
        super().__init__(reason)


class Judge(ABC, Generic[Options]):
    """Scores trajectories. The public method is final: it tries again and turns failures into judgements without a
    score.

    Args:
        options: the judge's own section, `judge.options`.
        tries: how often a case is judged before the judge has failed.
    """

    name: str
    """Which model or rule this is, and of which version."""
    section: ClassVar[type[Section]] = Section
    """What `judge.options` must be; a judge with options of its own names theirs."""
    prompt: ClassVar[str] = ""
    """What a model is asked; a judge with another prompt is another judge."""

    def __init__(self, options: Options, tries: int = 1) -> None:
        self.options, self.tries = options, tries

    @property
    def version(self) -> str:
        """The name and, for a judge with a prompt, its hash: another version gives another opinion."""
        return f"{self.name}-{hashlib.sha256(self.prompt.encode()).hexdigest()[:8]}" if self.prompt else self.name

    def require(self) -> None:
        """Raises FlywheelError if the judge cannot work here; asked before anything is spent."""

    @final
    def score(self, cases: Sequence[Case]) -> list[Judgement]:
        """One judgement per case, in order; scores lie in [0, 1]."""
        return [self._tried(case) for case in cases]

    def _tried(self, case: Case) -> Judgement:
        problem = ""
        for _ in range(self.tries):
            try:
                judgement = self._score(case)
            except JudgeFailure as failure:
                problem = str(failure)
                if failure.again:
                    continue
                break
            if judgement.score is not None and 0.0 <= judgement.score <= 1.0:
                return judgement
            problem = f"a score of {judgement.score}, which is not in [0, 1]"
        return Judgement(None, f"{self.name}: {problem}")

    @abstractmethod
    def _score(self, case: Case) -> Judgement:
        """The judgement of one case; raises JudgeFailure."""
