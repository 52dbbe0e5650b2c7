"""A judge that counts clicks and needs no model."""

from models.judges.judge import Judge, JudgeCase, Judgement
from schemas.config.section import Count, Section


class ClickOptions(Section):
    """`[judge.options]`."""

    wanted: Count = 2


class ClickJudge(Judge[ClickOptions]):
    """1 for enough clicks, 0 for too few."""

    name = "clicks-1"
    section = ClickOptions

    def _score(self, case: JudgeCase) -> Judgement:
        clicks = sum("click(" in reply for reply in case.replies)
        return Judgement(float(clicks >= self.options.wanted), f"{clicks} clicks")
