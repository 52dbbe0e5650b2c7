"""The seam between a finished trajectory and a model that scores it, for tasks whose environment has no verifier.

A judge sees what UI-TARS-2's outcome reward model sees (arXiv 2509.02544): the whole text and the last screens. It
answers with a score in [0, 1]. A judge that fails has no opinion: that is an environment failure, never a bad score.
It scores batches, of trajectories that have just ended or that rest in the lake, and compares two of one task.
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
    """What the policy answered, step by step."""
    screens: tuple[bytes, ...]
    """PNG of the last screens, oldest first, the one at the end last."""
    actions: tuple[str | None, ...] = ()
    """What was done, step by step, as canonical JSON; None where a reply held no action."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's answer; `score` is None if it failed, and `reason` then says how."""

    score: float | None
    reason: str
    tokens: int = 0
    """What a served model read and wrote for it; 0 where nobody counts them."""


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
    reached: ClassVar[frozenset[str]] = frozenset()
    """The options that are no part of the version: they say how a judge is reached, or are in its name."""
    draws: bool = False
    """Whether the same case may get another answer when it is judged again, as votes need."""

    def __init__(self, options: Options, tries: int = 1) -> None:
        self.options, self.tries = options, tries

    @property
    def version(self) -> str:
        """The name, a hash of the prompt and, where options are not the default ones, a hash of what differs: another
        version gives another opinion."""
        changed = self.options.model_dump_json(exclude_defaults=True, exclude=set(self.reached))
        texts = [text for text in (self.prompt, changed) if text not in ("", "{}")]
        return "-".join([self.name, *(hashlib.sha256(text.encode()).hexdigest()[:8] for text in texts)])

    def require(self) -> None:
        """Raises FlywheelError if the judge cannot work here; asked before anything is spent."""

    def knows(self, task_id: str, seed: int) -> bool:
        """Whether it was trained on that task with that seed, so that its word on it is no evidence."""
        return False

    @final
    def score(self, cases: Sequence[JudgeCase], votes: int = 1) -> list[Judgement]:
        """One judgement per case, in order; scores lie in [0, 1]. Of several votes all must be given, and the lowest
        counts: a case is accepted only if all accept it."""
        rounds = [self._checked(self._judge(cases)) for _ in range(votes)]
        return [_agreed(given) for given in zip(*rounds, strict=True)]

    @final
    def compare(self, first: JudgeCase, second: JudgeCase) -> Comparison:
        """Which of two trajectories of one task is better, asked in both orders, in each as often as it is tried."""
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
        """A judgement per case; a judge that is quicker on several at once does them here."""
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
        """P(the first is better), for this order; raises JudgeFailure. By the scores, unless a judge knows better."""
        one, other = self._checked(self._judge([first, second]))
        if one.score is None or other.score is None:
            raise JudgeFailure(one.reason if one.score is None else other.reason, again=False)  # each was tried
        return (1 + one.score - other.score) / 2

    @abstractmethod
    def _score(self, case: JudgeCase) -> Judgement:
        """The judgement of one case; raises JudgeFailure."""


def _problem(judgement: Judgement) -> str:
    """What is wrong with a judgement; empty if nothing is."""
    if judgement.score is not None and 0.0 <= judgement.score <= 1.0:
        return ""
    return f"a score of {judgement.score}, which is not in [0, 1]"


def _agreed(votes: Sequence[Judgement]) -> Judgement:
    """The lowest of several votes, with all of them in its reason; none where one of them failed."""
    if len(votes) == 1:
        return votes[0]
    tokens = sum(vote.tokens for vote in votes)
    for vote in votes:
        if vote.score is None:
            return Judgement(None, vote.reason, tokens)
    lowest = min(votes, key=lambda vote: vote.score or 0.0)
    scores = " ".join(f"{vote.score:.2f}" for vote in votes)
    return Judgement(lowest.score, f"votes {scores}: {lowest.reason}", tokens)
