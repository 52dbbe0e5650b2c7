"""Defines judges: models that score finished trajectories of tasks whose environment has no verifier.

A judge sees the same as UI-TARS-2's outcome reward model (arXiv 2509.02544): the whole text and the last screens. A
judge answers with a score in [0, 1]. A failure of the judge is an environment failure, never a bad score. A judge
scores batches of trajectories that have just ended or that are in the lake, and compares two trajectories of a task.

The judge `fake` has no model and serves tests.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar, final

from schemas.config.section import Section

Options = TypeVar("Options", bound=Section)
Winner = Literal["first", "second", "tie"]


@dataclass(frozen=True, slots=True)
class JudgeCase:
    """A finished trajectory as a judge sees it."""

    instruction: str
    replies: tuple[str, ...]
    """Replies of the policy, step by step."""
    screens: tuple[bytes, ...]
    """PNG of the last screens, oldest first; the final screen is the last."""
    actions: tuple[str | None, ...] = ()
    """Actions of all replies, in order, as canonical JSON; None for a reply without an action."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Answer of a judge; `score` is None if it failed, and `reason` then holds the error."""

    score: float | None
    reason: str
    tokens: int = 0
    """Tokens that a served model read and wrote for the judgement; 0 if they are not counted."""


class JudgeFailure(Exception):
    """Raised if the judge gave no answer, or an answer without a score; `again` is True if a retry may help."""

    def __init__(self, reason: str, again: bool = True) -> None:
        self.again = again
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of a comparison; `probability` is None if the judge failed, and `reason` then holds the error."""

    probability: float | None
    """Probability that the first trajectory is better, averaged over both orders."""
    winner: Winner
    reason: str = ""


class Judge(ABC, Generic[Options]):
    """Scores trajectories.

    Subclasses do not override `score`: it retries, and turns failures into judgements without a score.

    Args:
        options: the judge's own section, `judge.options`.
        tries: number of attempts per case after which the judge has failed.
    """

    name: str
    """Name and version of the judge's model or rule."""
    section: ClassVar[type[Section]] = Section
    """Section of `judge.options`; a judge with own options names their section."""
    prompt: ClassVar[str] = ""
    """Prompt of a model; the version depends on it."""
    reached: ClassVar[frozenset[str]] = frozenset()
    """Options that the version does not hash: they configure access to the judge, or are in its name."""
    draws: bool = False
    """Whether a repeated judgement of a case may differ, as several votes need."""

    def __init__(self, options: Options, tries: int = 1) -> None:
        self.options, self.tries = options, tries

    @property
    def version(self) -> str:
        """Returns the name with hashes of the prompt and of options that differ from the defaults.

        A case gets a new judgement from a judge with another version.
        """
        changed = self.options.model_dump_json(exclude_defaults=True, exclude=set(self.reached))
        texts = [text for text in (self.prompt, changed) if text not in ("", "{}")]
        return "-".join([self.name, *(hashlib.sha256(text.encode()).hexdigest()[:8] for text in texts)])

    def require(self) -> None:
        """Raises FlywheelError if a requirement of the judge is missing; called before any cost arises."""

    def knows(self, task_id: str, seed: int) -> bool:
        """Checks whether the judge was trained on this task and seed, so that its judgement is no evidence."""
        return False

    @final
    def score(self, cases: Sequence[JudgeCase], votes: int = 1) -> list[Judgement]:
        """Returns one judgement per case, in order; scores lie in [0, 1].

        With several votes, every vote must succeed and the lowest counts, so a case is accepted only if all votes
        accept it.
        """
        rounds = [self._checked(self._judge(cases)) for _ in range(votes)]
        return [_agreed(given) for given in zip(*rounds, strict=True)]

    @final
    def compare(self, first: JudgeCase, second: JudgeCase) -> Comparison:
        """Compares two trajectories of one task in both orders, each with as many tries as a judgement."""
        try:
            return both_orders(self._preferred(first, second), self._preferred(second, first))
        except JudgeFailure as failure:
            reason = str(failure).removeprefix(f"{self.name}: ")
            return Comparison(None, "tie", f"{self.name}: {reason}")

    def _preferred(self, first: JudgeCase, second: JudgeCase) -> float:
        for left in reversed(range(self.tries)):
            try:
                return self._prefer(first, second)
            except JudgeFailure as failure:
                if not (left and failure.again):
                    raise
        raise JudgeFailure("it was never asked")

    def _judge(self, cases: Sequence[JudgeCase]) -> list[Judgement]:
        """Returns a judgement per case; a judge that is faster with batches overrides this method."""
        return [self._tried(case) for case in cases]

    def _tried(self, case: JudgeCase) -> Judgement:
        problem = ""
        for _ in range(self.tries):
            try:
                judgement = self._score(case)
            except JudgeFailure as failure:
                problem = str(failure)
                if failure.again:
                    continue
                break
            problem = _problem(judgement)
            if not problem:
                return judgement
        return Judgement(None, f"{self.name}: {problem}")

    def _checked(self, judgements: Sequence[Judgement]) -> list[Judgement]:
        return [
            Judgement(None, f"{self.name}: {problem}") if one.score is not None and (problem := _problem(one)) else one
            for one in judgements
        ]

    def _prefer(self, first: JudgeCase, second: JudgeCase) -> float:
        """Computes P(the first is better) in this order, by default from their scores; raises JudgeFailure."""
        one, other = self._checked(self._judge([first, second]))
        if one.score is None or other.score is None:
            raise JudgeFailure(one.reason if one.score is None else other.reason, again=False)  # both were tried
        return (1 + one.score - other.score) / 2

    @abstractmethod
    def _score(self, case: JudgeCase) -> Judgement:
        """Judges one case; raises JudgeFailure."""


def _problem(judgement: Judgement) -> str:
    """Describes the error of a judgement; empty if it has a score."""
    if judgement.score is not None and 0.0 <= judgement.score <= 1.0:
        return ""
    return f"a score of {judgement.score}, which is not in [0, 1]"


def _agreed(votes: Sequence[Judgement]) -> Judgement:
    """Returns the lowest of several votes, with all of them in its reason; the result has no score if a vote failed."""
    if len(votes) == 1:
        return votes[0]
    tokens = sum(vote.tokens for vote in votes)
    for vote in votes:
        if vote.score is None:
            return Judgement(None, vote.reason, tokens)
    lowest = min(votes, key=lambda vote: vote.score or 0.0)
    scores = " ".join(f"{vote.score:.2f}" for vote in votes)
    return Judgement(lowest.score, f"votes {scores}: {lowest.reason}", tokens)


def both_orders(straight: float, swapped: float) -> Comparison:
    """Combines both orders into the comparison of a first and a second trajectory.

    Seed1.5-VL's pairwise generative reward model compares so (arXiv 2505.07062). Scoring both orders cancels the bias
    for a position, so that the mean has p(a > b) + p(b > a) = 1 exactly. There is a winner only if both orders agree.

    Args:
        straight: P(the first trajectory is better) if it is shown first; in [0, 1].
        swapped: P(the second trajectory is better) if it is shown first; in [0, 1].
    """
    probability = (straight + 1 - swapped) / 2
    if straight > 0.5 > swapped:
        return Comparison(probability, "first")
    if swapped > 0.5 > straight:
        return Comparison(probability, "second")
    return Comparison(probability, "tie")


class FakeJudge(Judge[Section]):
    """The share of the words that the instruction quotes which were typed. The same case always gets the same score."""

    name = "fake-judge-1"

    def _score(self, case: JudgeCase) -> Judgement:
        asked = [word for quoted in re.findall(r'"([^"]+)"', case.instruction) for word in quoted.split()]
        if not asked:
            raise JudgeFailure("the instruction quotes nothing")
        written = [
            word for reply in case.replies for text in re.findall(r"content='([^']*)'", reply) for word in text.split()
        ]
        found = sum(word in written for word in asked)
        return Judgement(found / len(asked), f"{found} of {len(asked)} words were written")
