"""Judges: models that score finished trajectories of tasks whose environment has no verifier.

A judge sees the same as UI-TARS-2's outcome reward model (arXiv 2509.02544): the whole text and the last screens. It
answers with a score in [0, 1]. A failure of the judge is an environment failure, never a bad score. It scores batches,
of trajectories that have just ended or that rest in the lake, and compares two of one task.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar, final

from models.judges.pairwise import Comparison, both_orders
from schemas.config.section import Section

Options = TypeVar("Options", bound=Section)


@dataclass(frozen=True, slots=True)
class JudgeCase:
    """A finished trajectory as a judge sees it."""

    instruction: str
    replies: tuple[str, ...]
    """Replies of the policy, step by step."""
    screens: tuple[bytes, ...]
    """PNG of the last screens, oldest first, the one at the end last."""
    actions: tuple[str | None, ...] = ()
    """Actions, step by step, as canonical JSON; None where a reply held no action."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Answer of a judge; `score` is None if it failed, and `reason` then holds the error."""

    score: float | None
    reason: str
    tokens: int = 0
    """Tokens that a served model read and wrote for it; 0 if they are not counted."""


class JudgeFailure(Exception):
    """Raised if the judge gave no answer, or one without a score; `again` is True if a retry may help."""

    def __init__(self, reason: str, again: bool = True) -> None:
        self.again = again
        super().__init__(reason)


class Judge(ABC, Generic[Options]):
    """Scores trajectories. The public method is final: it retries, and turns failures into judgements without a score.

    Args:
        options: the judge's own section, `judge.options`.
        tries: how often a case is judged before the judge has failed.
    """

    name: str
    """Name and version of the model or rule."""
    section: ClassVar[type[Section]] = Section
    """Section of `judge.options`; a judge with options of its own names theirs."""
    prompt: ClassVar[str] = ""
    """Prompt of a model; a judge with another prompt is another judge."""
    reached: ClassVar[frozenset[str]] = frozenset()
    """Options outside of the version: they configure access to the judge, or are in its name."""
    draws: bool = False
    """Whether the same case may get another answer when it is judged again, as votes need."""

    def __init__(self, options: Options, tries: int = 1) -> None:
        self.options, self.tries = options, tries

    @property
    def version(self) -> str:
        """Returns the name with hashes of the prompt and of options that differ from the defaults.

        Another version gives another judgement.
        """
        changed = self.options.model_dump_json(exclude_defaults=True, exclude=set(self.reached))
        texts = [text for text in (self.prompt, changed) if text not in ("", "{}")]
        return "-".join([self.name, *(hashlib.sha256(text.encode()).hexdigest()[:8] for text in texts)])

    def require(self) -> None:
        """Raises FlywheelError if the judge cannot work here; called before anything is spent."""

    def knows(self, task_id: str, seed: int) -> bool:
        """Checks whether it was trained on that task and seed: its judgement is then no evidence."""
        return False

    @final
    def score(self, cases: Sequence[JudgeCase], votes: int = 1) -> list[Judgement]:
        """Returns one judgement per case, in order; scores lie in [0, 1].

        Of several votes all must be given, and the lowest counts: a case is accepted only if all accept it.
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
        """Returns a judgement per case; a judge that is faster on several at once overrides this."""
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
        """Computes P(the first is better), for this order; raises JudgeFailure. By the scores, unless overridden."""
        one, other = self._checked(self._judge([first, second]))
        if one.score is None or other.score is None:
            raise JudgeFailure(one.reason if one.score is None else other.reason, again=False)  # each was tried
        return (1 + one.score - other.score) / 2

    @abstractmethod
    def _score(self, case: JudgeCase) -> Judgement:
        """Judges one case; raises JudgeFailure."""


def _problem(judgement: Judgement) -> str:
    """Describes the error of a judgement; empty if there is none."""
    if judgement.score is not None and 0.0 <= judgement.score <= 1.0:
        return ""
    return f"a score of {judgement.score}, which is not in [0, 1]"


def _agreed(votes: Sequence[Judgement]) -> Judgement:
    """Returns the lowest of several votes, with all of them in its reason; none where one of them failed."""
    if len(votes) == 1:
        return votes[0]
    tokens = sum(vote.tokens for vote in votes)
    for vote in votes:
        if vote.score is None:
            return Judgement(None, vote.reason, tokens)
    lowest = min(votes, key=lambda vote: vote.score or 0.0)
    scores = " ".join(f"{vote.score:.2f}" for vote in votes)
    return Judgement(lowest.score, f"votes {scores}: {lowest.reason}", tokens)
