"""How far a judge is trusted: closed forms of agreement, and the bars under which it may only veto."""

from datetime import UTC, datetime

import pytest

from curation.agreement import Confusion, agreement_of, confusion_of, probation, totals
from schemas.config.curating import JudgeConfig
from schemas.tables.agreement import Against, Agreement
from tests.fixtures.sentences import Sentences

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def rows(*counts: tuple[int, int, int, int], against: Against = "verifier") -> list[Agreement]:
    return [agreement_of("j", against, number, Confusion(*one), NOW) for number, one in enumerate(counts)]


def test_kappa_is_cohens() -> None:
    # the example of Wikipedia's page on Cohen's kappa: 20 yes-yes, 5 and 10 apart, 15 no-no
    assert Confusion(20, 10, 5, 15).kappa == pytest.approx(0.4)
    assert Confusion(10, 0, 0, 10).kappa == 1.0
    assert Confusion(0, 10, 10, 0).kappa == -1.0
    assert Confusion(25, 25, 25, 25).kappa == 0.0
    assert Confusion(10, 0, 0, 0).kappa is None and Confusion().kappa is None


def test_precision_recall_f1_and_false_accepts_are_shares_or_nothing() -> None:
    found = confusion_of([True, True, True, False, False], [True, True, False, True, False])
    assert found == Confusion(2, 1, 1, 1)
    assert (found.precision, found.recall, found.f1) == (2 / 3, 2 / 3, 2 / 3)
    assert found.false_accept_rate == 0.5
    assert Confusion().f1 is None and Confusion(1, 0, 0, 0).false_accept_rate is None


def test_counts_of_iterations_add_up_by_who_knew() -> None:
    both = [*rows((1, 2, 3, 4), (1, 0, 0, 1)), *rows((5, 0, 0, 5), against="people")]
    assert totals(both) == {"verifier": Confusion(2, 2, 3, 5), "people": Confusion(5, 0, 0, 5)}


def test_a_judge_is_on_probation_until_it_was_compared_often_enough() -> None:
    config = JudgeConfig(evidence_min=20)
    assert probation([], config) == "compared 0 times, of 20"
    assert probation(rows((9, 0, 0, 10)), config) == "compared 19 times, of 20"
    assert probation(rows((9, 0, 0, 10), (1, 0, 0, 0)), config) == ""
    assert probation([], JudgeConfig(evidence_min=0)) == ""


def test_a_judge_that_agrees_too_little_or_accepts_too_many_failures_is_on_probation(sentence: Sentences) -> None:
    config = JudgeConfig(evidence_min=20, kappa_min=0.6, false_accept_max=0.1)
    assert probation(rows((10, 0, 9, 10)), config).startswith("kappa against verifier is 0.43")
    assert probation(rows((50, 2, 0, 8)), config).startswith("false accepts against verifier are 0.20")
    sentence(probation(rows((0, 0, 0, 20)), config))


def test_without_failures_nothing_is_known_of_false_accepts(sentence: Sentences) -> None:
    found = probation(rows((99, 0, 0, 1)), JudgeConfig(evidence_min=100))
    sentence(found)
    assert probation(rows((80, 0, 0, 20)), JudgeConfig(evidence_min=100)) == ""


def test_few_words_of_people_that_all_contradict_a_judge_put_it_on_probation() -> None:
    verified = rows((50, 0, 0, 50))
    found = probation([*verified, *rows((0, 19, 0, 0), against="people")], JudgeConfig(evidence_min=100))
    assert found == "false accepts against people are 1.00, above 0.1"


def test_with_whomever_it_was_compared_often_enough_a_judge_must_agree() -> None:
    config = JudgeConfig(evidence_min=20)
    good = rows((15, 0, 0, 15))
    assert probation([*good, *rows((5, 10, 0, 15), against="people")], config).startswith("kappa against people")
    assert probation([*good, *rows((0, 1, 0, 4), against="people")], config) == ""
