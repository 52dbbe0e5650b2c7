"""The seam between a finished play and a model that scores it, for tasks whose environment has no verifier.

A judge sees what UI-TARS-2's outcome reward model sees (arXiv 2509.02544): the whole text and the last screens. It
answers with a score in [0, 1]. A judge that fails has no opinion: that is an environment failure, never a bad score.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final


@dataclass(frozen=True, slots=True)
class Case:
    """A finished play as a judge sees it."""

    instruction: str
    replies: tuple[str, ...]
    """What the player said, step by step."""
    screens: tuple[bytes, ...]
    """PNG of the last screens, oldest first, the one at the end last."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge says; `score` is None if it failed, and `reason` then says how."""

    score: float | None
    reason: str


class JudgeFailure(Exception):
    """The judge gave no answer, or none that is a score."""


class Judge(ABC):
    """Scores plays. The public method is final: it tries again and turns failures into judgements without a score."""

    name: str
    tries: int = 1

    @final
    def score(self, cases: Sequence[Case]) -> list[Judgement]:
        """One judgement per case, in order; scores lie in [0, 1]."""
        return [self._tried(case) for case in cases]

    def _tried(self, case: Case) -> Judgement:
        said = ""
        for _ in range(self.tries):
            try:
                judgement = self._score(case)
            except JudgeFailure as failure:
                said = str(failure)
                continue
            if judgement.score is not None and 0.0 <= judgement.score <= 1.0:
                return judgement
            said = f"a score of {judgement.score}, which is not in [0, 1]"
        return Judgement(None, f"{self.name}: {said}")

    @abstractmethod
    def _score(self, case: Case) -> Judgement:
        """The judgement of one case; raises JudgeFailure."""


class FakeJudge(Judge):
    """For tests: the share of the words that the instruction quotes which the player wrote. The same case always gets
    the same score."""

    name = "fake-judge-1"

    def _score(self, case: Case) -> Judgement:
        asked = [word for quoted in re.findall(r'"([^"]+)"', case.instruction) for word in quoted.split()]
        if not asked:
            raise JudgeFailure("the instruction quotes nothing")
        written = [
            word for said in case.replies for text in re.findall(r"content='([^']*)'", said) for word in text.split()
        ]
        found = sum(word in written for word in asked)
        return Judgement(found / len(asked), f"{found} of {len(asked)} words were written")
