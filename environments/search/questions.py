"""Define questions with their answers and evidence, and read them from a user's file.

The evidence is a list of facts. Each fact has the pages that hold it; one of them is enough. An answer is supported if
at least one page of each fact was open when the answer was given.
"""

import datetime
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from environments.search.answers import RightAnswer, date_in
from environments.search.corpus import Corpus
from schemas.action import Action, Finished, Navigate
from schemas.failure import UsageError
from schemas.problem import named_problem
from schemas.tables.trajectory import SPLIT_STARTS, SeedSplit

SAFE = "/ "
"""Characters of a page's id that an address of `navigate` keeps."""
Result = Literal["wrong", "partly right", "unsupported", "supported"]


@dataclass(frozen=True, slots=True)
class Assessment:
    """The assessment of one answer."""

    result: Result
    """`partly right`: some items of a set are right. `unsupported`: right, but a fact has no opened page."""
    share: float
    """How much of the answer is right, in [0, 1]."""
    missing: tuple[tuple[str, ...], ...] = ()
    """Pages of each fact without an opened page."""

    @property
    def reason(self) -> str:
        """Returns a sentence about the result."""
        if self.result == "wrong":
            return "wrong answer"
        if self.result == "partly right":
            return f"partly right answer: {self.share:.0%} of its items"
        if self.result == "supported":
            return "right answer, supported by the opened pages"
        lacking = "; ".join(" or ".join(pages) for pages in self.missing)
        return f"right answer, not supported: these pages were not opened: {lacking}"


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """A question about a corpus."""

    text: str
    answer: RightAnswer
    evidence: tuple[tuple[str, ...], ...]
    """Ids of the pages that hold each fact."""
    excludes: frozenset[str] = frozenset()
    """Ids of pages that the policy can neither find nor open."""

    @property
    def script(self) -> tuple[Action, ...]:
        """Returns actions that open a page of each fact, in the order of the facts, and give the right answer."""
        pages = list[str]()
        for fact in self.evidence:
            if not set(fact) & set(pages):
                pages.append(fact[0])
        opens = (Navigate(content=f"/page/{quote(page, safe=SAFE)}") for page in pages)
        return (*opens, Finished(content=self.answer.written))

    def assess(self, text: str, opened: Collection[str]) -> Assessment:
        """Assesses an answer, given the pages that were opened before it."""
        share = self.answer.share(text)
        missing = tuple(pages for pages in self.evidence if not set(pages) & set(opened))
        if share < 1.0:
            return Assessment("partly right" if share else "wrong", share, missing)
        return Assessment("unsupported" if missing else "supported", share, missing)


class QuestionRow(BaseModel):
    """One line of a file of questions."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    question: Annotated[str, Field(min_length=1)]
    answer: str | int | float | Annotated[list[str], Field(min_length=1)]
    """A text, a number, a list of texts, or a date."""
    kind: Literal["text", "number", "set", "date"] = "text"
    """How an answer is compared."""
    evidence: Annotated[list[str | Annotated[list[str], Field(min_length=1)]], Field(min_length=1)]
    """The page of each fact, or the pages of which one is enough."""
    unit: str = ""
    tolerance: Annotated[float, Field(ge=0.0)] = 0.0
    excludes: list[str] = []
    split: SeedSplit = "train"
    """Seeds that ask the question."""

    def checked(self) -> SearchQuestion:
        """Makes the question; raises ValueError that names a field."""
        types = {"text": str, "number": int | float, "set": list, "date": str}
        if isinstance(self.answer, bool) or not isinstance(self.answer, types[self.kind]):
            raise ValueError(f"`answer`: {self.answer!r} is no {self.kind}, although `kind` is {self.kind}")
        if self.kind != "number" and (self.unit or self.tolerance):
            raise ValueError(f"`{'unit' if self.unit else 'tolerance'}`: only a number has one")
        value: str | float | datetime.date | tuple[str, ...]
        value = tuple(self.answer) if isinstance(self.answer, list) else self.answer
        if self.kind == "date":
            day = date_in(str(value))
            if day is None:
                raise ValueError(f"`answer`: {value!r} is no date, such as 1861-05-03")
            value = day
        evidence = tuple((one,) if isinstance(one, str) else tuple(one) for one in self.evidence)
        if lost := {page for pages in evidence for page in pages} & set(self.excludes):
            raise ValueError(f"`excludes`: {min(lost)} is also in `evidence`")
        return SearchQuestion(
            self.question, RightAnswer(value, self.unit, self.tolerance), evidence, frozenset(self.excludes)
        )


def read_questions(path: Path, corpus: Corpus, key: str) -> Mapping[SeedSplit, tuple[SearchQuestion, ...]]:
    """Reads a JSON Lines file of questions about a corpus, by split.

    Args:
        path: the file.
        corpus: the corpus, which must have all named pages.
        key: config key of the file, for errors.

    Raises:
        UsageError: the file cannot be read, a line is no question, a page does not exist, or a split has no question.
            The message names the line and the field.
    """
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"`{key}`: {path} cannot be read: {error}.", "docs/search.md shows such a file.") from error
    found: dict[SeedSplit, list[SearchQuestion]] = {split: [] for split in SPLIT_STARTS}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = QuestionRow.model_validate(json.loads(line), strict=True)
            question = row.checked()
            for field in ("evidence", "excludes"):
                _require_pages(getattr(question, field), field, corpus)
        except ValidationError as error:
            raise _wrong(path, number, named_problem(error)) from error
        except ValueError as error:
            raise _wrong(path, number, str(error)) from error
        found[row.split].append(question)
    if empty := [split for split, questions in found.items() if not questions]:
        raise UsageError(
            f"`{key}`: {path} has no question with `split` {empty[0]}.",
            "Give each of train, validation and test at least one question.",
        )
    return {split: tuple(questions) for split, questions in found.items()}


def _require_pages(pages: Collection[str] | Collection[tuple[str, ...]], field: str, corpus: Corpus) -> None:
    for one in pages:
        for page in (one,) if isinstance(one, str) else one:
            if corpus.target(page) != page:
                raise ValueError(f"`{field}`: {corpus.name} has no page {page}")


def _wrong(path: Path, number: int, problem: str) -> UsageError:
    return UsageError(f"{path}, line {number}: {problem}.", "docs/search.md shows such a file.")
