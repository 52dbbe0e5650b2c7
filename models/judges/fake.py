"""Judges without a model, for tests."""

import re

from models.judges.judge import Judge, JudgeCase, JudgeFailure, Judgement
from schemas.config.section import Section


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
