"""A sequential test decides early where it is decided, and as rarely wrongly as it says."""

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from curation.intervals import paired
from curation.promotion import PromotionRule, better, look, not_worse

TASKS, LOOKS = 15, (5, 10, 15)
CANDIDATE = not_worse(0.03, 0.05, 0.05, 0.05, "tolerance")
CAUTIOUS = not_worse(0.03, 0.05, 0.05, 0.05, "hold")
BOUNDED = not_worse(0.03, 0.05, 0.05, 0.05, "bounded")
REPRODUCTION = better(0.05, 0.05, 0.05)


def outcomes(
    rule: PromotionRule,
    difference: float,
    disagree: float,
    times: int = 400,
    looks: Sequence[int] = LOOKS,
    tasks: int = TASKS,
) -> tuple[dict[str, float], float]:
    """Shares of the outcomes where two policies disagree so often and differ by so much, and the mean of the pairs."""
    dice, found, pairs = random.Random(1), Counter[str](), 0
    wins, losses = (disagree + difference) / 2, (disagree - difference) / 2
    for _ in range(times):
        drawn = [[dice.random() for _ in range(looks[-1])] for _ in range(tasks)]
        for seeds in looks:
            shown = {(f"t{task}", seed): drawn[task][seed] for task in range(tasks) for seed in range(seeds)}
            old = {key: wins <= value < wins + losses for key, value in shown.items()}
            new = {key: value < wins for key, value in shown.items()}
            decision = look(rule, paired(new, old), seeds == looks[-1])
            if decision is not None:
                found[decision.outcome] += 1
                pairs += decision.pairs
                break
    return {name: found[name] / times for name in ("promote", "hold", "reject")}, pairs / times


@pytest.mark.parametrize("disagree", [0.1, 0.2, 0.4])
def test_what_is_worse_by_the_first_hypothesis_is_promoted_as_rarely_as_stated(disagree: float) -> None:
    for rule in (CAUTIOUS, BOUNDED):
        shares, _ = outcomes(rule, rule.low, disagree)
        assert shares["promote"] <= rule.alpha


@pytest.mark.parametrize("between", [1, 2])
@pytest.mark.parametrize(
    ("rule", "difference", "wrong"),
    [(CAUTIOUS, CAUTIOUS.low, "promote"), (CAUTIOUS, CAUTIOUS.high, "reject"), (REPRODUCTION, 0.0, "promote")],
)
def test_looking_after_every_seed_errs_no_more_often_than_stated(
    rule: PromotionRule, difference: float, wrong: str, between: int
) -> None:
    shares, _ = outcomes(rule, difference, 0.4, looks=[*range(between, 15, between), 15])
    assert shares[wrong] <= 0.05


@pytest.mark.parametrize("rule", [CAUTIOUS, BOUNDED])
@pytest.mark.parametrize(("tasks", "looks"), [(5, range(1, 16)), (5, LOOKS), (1, range(5, 61, 5))])
def test_on_small_suites_of_pairs_that_are_nearly_all_drawn_it_errs_no_more_often_than_stated(
    rule: PromotionRule, tasks: int, looks: Sequence[int]
) -> None:
    shares, _ = outcomes(rule, rule.low, 0.08, looks=looks, tasks=tasks)
    assert shares["promote"] <= rule.alpha


def test_pairs_that_are_all_drawn_say_how_many_a_worse_candidate_would_lose() -> None:
    found = paired(*[{("t", seed): True for seed in range(40)}] * 2)
    assert CANDIDATE.variance(found) - found.variance == pytest.approx((0.08 - 0.08**2) / 40)
    even = {("t", seed): seed % 2 == 0 for seed in range(40)}
    odd = {key: not won for key, won in even.items()}
    half = paired(even, odd)
    assert CANDIDATE.variance(half) == pytest.approx(half.variance, rel=0.01)


@pytest.mark.parametrize("disagree", [0.1, 0.2, 0.4])
def test_what_stands_at_the_second_hypothesis_is_rejected_as_rarely_as_stated(disagree: float) -> None:
    shares, _ = outcomes(CANDIDATE, CANDIDATE.high, disagree)
    assert shares["reject"] <= CANDIDATE.beta


def test_an_undecided_candidate_within_the_tolerance_is_gone_on_from_unless_the_rule_is_cautious() -> None:
    lenient, _ = outcomes(CANDIDATE, 0.0, 0.4)
    cautious, _ = outcomes(CAUTIOUS, 0.0, 0.4)
    assert lenient["promote"] > 0.7 > cautious["promote"]
    assert cautious["hold"] > lenient["hold"]
    bounded, _ = outcomes(BOUNDED, 0.02, 0.2)
    assert bounded["promote"] > 0.88


def test_a_promotion_that_the_test_did_not_decide_states_how_often_a_worse_one_would_come_as_far() -> None:
    risks: list[float] = []
    dice = random.Random(2)
    for _ in range(60):
        drawn = {(f"t{task}", seed): dice.random() for task in range(TASKS) for seed in range(15)}
        new, old = ({key: low <= one < high for key, one in drawn.items()} for low, high in ((0, 0.2), (0.2, 0.4)))
        found = paired(new, old)
        decision = look(CANDIDATE, found, True)
        assert decision is not None
        if "test undecided after 225 pairs" in decision.reason and decision.promoted:
            risks.append(CANDIDATE.risk(found))
            risk = f"a candidate worse by 0.08 would pass with probability {100 * risks[-1]:.1f} %"
            assert decision.reason.endswith(risk)
        assert BOUNDED.risk(found) <= 0.025 + 1e-9 and CAUTIOUS.risk(found) == 0
    undecided_share, _ = outcomes(CANDIDATE, CANDIDATE.low, 0.4)
    decided_share, _ = outcomes(CAUTIOUS, CAUTIOUS.low, 0.4)
    assert risks and sum(risks) / len(risks) == pytest.approx(
        undecided_share["promote"] - decided_share["promote"], abs=0.05
    )


def test_what_is_clear_is_decided_at_the_first_look() -> None:
    for difference in (-0.3, 0.3):
        shares, pairs = outcomes(CANDIDATE, difference, 0.4, times=50)
        assert pairs < 1.1 * TASKS * LOOKS[0]
        assert shares["promote" if difference > 0 else "reject"] == 1.0


@pytest.mark.parametrize("disagree", [0.0, 0.1, 0.2, 0.4])
def test_a_reproduction_that_is_no_better_dethrones_the_champion_as_rarely_as_stated(disagree: float) -> None:
    shares, _ = outcomes(REPRODUCTION, 0.0, disagree)
    assert shares["promote"] <= REPRODUCTION.alpha


def test_a_reproduction_that_wins_reigns() -> None:
    shares, _ = outcomes(REPRODUCTION, 0.2, 0.3, times=50)
    assert shares["promote"] > 0.95


def test_equal_is_not_worse_and_no_win() -> None:
    same = {(f"t{task}", seed): seed % 2 == 0 for task in range(TASKS) for seed in range(15)}
    promoted, kept = (look(rule, paired(same, same), True) for rule in (CANDIDATE, REPRODUCTION))
    assert promoted is not None and promoted.promoted
    assert kept is not None and not kept.promoted


def test_a_decision_tells_its_numbers() -> None:
    new, old = {("a", 1): True, ("a", 2): True, ("a", 3): False}, {("a", 1): False, ("a", 2): True, ("a", 3): True}
    decision = look(CANDIDATE, paired(new, old), True)
    assert decision is not None
    assert (decision.pairs, decision.wins, decision.losses, decision.difference) == (3, 1, 1, 0.0)
    assert decision.llr is not None and math.isfinite(decision.llr)
    assert "test undecided after 3 pairs (1 won, 1 lost); difference from the champion +0.000" in decision.reason
    assert "; too few seeds to be sure: raise `evaluate.seeds`; a candidate worse by 0.08" in decision.reason


def test_nothing_to_compare_is_held_once_there_are_no_more_seeds() -> None:
    assert look(CANDIDATE, paired({}, {}), False) is None
    decision = look(CANDIDATE, paired({}, {}), True)
    assert decision is not None and decision.outcome == "hold"
    assert "nothing to compare" in decision.reason
