"""Several votes on one trajectory, and two trajectories in both orders."""

from collections.abc import Sequence

import pytest

from models.judges.judge import Comparison, FakeJudge, Judge, JudgeCase, JudgeFailure, Judgement, both_orders
from models.judges.registry import judge_of, version_of
from schemas.config.curating import JudgeConfig
from schemas.config.section import Section
from schemas.failure import UsageError

CASE = JudgeCase("Do it.", ("Action: wait()",), (b"png",))


class Fickle(Judge[Section]):
    """Gives one score after the other; None for a failure."""

    name, draws = "fickle", True

    def __init__(self, scores: Sequence[float | None]) -> None:
        super().__init__(Section())
        self.scores = list(scores)

    def _score(self, case: JudgeCase) -> Judgement:
        score = self.scores.pop(0)
        if score is None:
            raise JudgeFailure("nothing to say", again=False)
        return Judgement(score, f"about {score}", tokens=10)


def test_all_votes_must_accept_so_the_lowest_is_the_score_and_each_is_kept() -> None:
    assert Fickle([0.9, 0.2, 0.8]).score([CASE], votes=3) == [Judgement(0.2, "votes 0.90 0.20 0.80: about 0.2", 30)]


def test_a_vote_that_fails_is_no_opinion() -> None:
    assert Fickle([0.9, None]).score([CASE], votes=2) == [Judgement(None, "fickle: nothing to say", 10)]


def test_votes_of_a_judge_that_never_changes_its_mind_are_refused() -> None:
    with pytest.raises(UsageError, match=r"judge\.votes=3.*same answer"):
        judge_of(JudgeConfig(kind="fake", votes=3))


def test_votes_are_part_of_a_verdicts_version() -> None:
    judge, config = FakeJudge(Section()), JudgeConfig(kind="fake", votes=2)
    assert version_of(judge, config) == f"{version_of(judge, JudgeConfig())} votes=2"


@pytest.mark.parametrize(
    ("straight", "swapped", "winner"),
    [(0.9, 0.2, "first"), (0.2, 0.9, "second"), (0.9, 0.9, "tie"), (0.1, 0.1, "tie"), (0.5, 0.0, "tie")],
)
def test_a_winner_is_named_only_where_both_orders_name_it(straight: float, swapped: float, winner: str) -> None:
    assert both_orders(straight, swapped).winner == winner


@pytest.mark.parametrize(("straight", "swapped"), [(0.9, 0.2), (0.7, 0.6), (1.0, 1.0), (0.0, 0.3)])
def test_the_probabilities_of_a_pair_and_of_the_swapped_pair_add_up_to_one(straight: float, swapped: float) -> None:
    one, other = both_orders(straight, swapped), both_orders(swapped, straight)
    assert (one.probability or 0) + (other.probability or 0) == 1.0


def test_a_judge_of_single_trajectories_compares_two_by_their_scores() -> None:
    def wrote(word: str) -> JudgeCase:
        return JudgeCase('Write "ada".', (f"Action: type(content='{word}')",), ())

    assert FakeJudge(Section()).compare(wrote("ada"), wrote("eve")) == Comparison(1.0, "first")
    assert FakeJudge(Section()).compare(wrote("eve"), wrote("eve")) == Comparison(0.5, "tie")


def test_a_judge_that_fails_on_one_of_two_prefers_neither() -> None:
    found = FakeJudge(Section()).compare(CASE, CASE)
    assert found == Comparison(None, "tie", "fake-judge-1: the instruction quotes nothing")
