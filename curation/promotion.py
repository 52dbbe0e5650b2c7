"""Decide on a candidate's promotion by a sequential test on trajectories of the same tasks and validation seeds.

Wald's sequential probability ratio test (Ann. Math. Stat. 16, 1945) between two mean differences, generalised to pairs
that are won, tied or lost, whose variance is estimated: with d the difference so far, v its variance, and hypotheses
`low` and `high`, the log likelihood ratio is (high - low)(d - (low + high)/2)/v (Van den Bergh, "A Practical
Introduction to the GSPRT", as Stockfish tests its engines). It stops above log((1 - beta)/alpha) or below log(beta/(1 -
alpha)). Promotion uses the variance that a candidate at `low` would have, since a few tied pairs contain little
information about the shares of wins and losses. Seeds are limited, so `undecided` decides if the test has no result
after all seeds. A candidate at `low` ends within the tolerance with probability 1 - Phi(resolution/sqrt(v)). The
decision states this probability.
"""

import json
import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Literal

from common.text import counted
from curation.intervals import Paired
from schemas.tables.promotion import Outcome

Undecided = Literal["tolerance", "bounded", "hold"]
"""Treatment of a candidate without a decision of the test (`promote.undecided`)."""


@dataclass(frozen=True, slots=True)
class PromotionRule:
    """Conditions for a candidate's promotion."""

    low: float
    """Difference at which at most a share `alpha` of candidates is promoted."""
    high: float
    """Difference at which at most a share `beta` of candidates is rejected."""
    alpha: float
    beta: float
    enough: float | None
    """Minimum difference for a promotion if the test is undecided after all seeds; None for no promotion."""
    bounded: bool = False
    """Whether the difference must also exceed `low` significantly, by its one-sided bound at half of `alpha`; the test
    itself uses the other half (`benchmarks.learning.promotion` simulates this)."""

    @property
    def canonical(self) -> str:
        """Return the rule as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    def variance(self, found: Paired) -> float:
        """Return the variance that the difference would have at `low`, for at least one pair."""
        return found.variance + _grown(found, self.low)

    def least(self, found: Paired) -> float | None:
        """Return the minimum difference for a promotion without a decision of the test; None for no promotion."""
        if self.enough is None or not self.bounded:
            return self.enough
        spread = math.sqrt(self.variance(found))
        return max(self.enough, self.low + NormalDist().inv_cdf(1 - self.alpha / 2) * spread)

    def risk(self, found: Paired) -> float:
        """Return the probability in [0, 1] that a candidate at `low` is promoted without a decision of the test."""
        least = self.least(found)
        return 0.0 if least is None else 1 - NormalDist(self.low, math.sqrt(self.variance(found))).cdf(least)


@dataclass(frozen=True, slots=True)
class PromotionDecision:
    """The decision and its numbers."""

    outcome: Outcome
    pairs: int
    wins: int
    losses: int
    difference: float | None
    low: float | None
    high: float | None
    """Upper end of the 95 % interval of the difference."""
    llr: float | None
    reason: str

    @property
    def promoted(self) -> bool:
        """Whether the candidate becomes champion."""
        return self.outcome == "promote"


def not_worse(tolerance: float, resolution: float, alpha: float, beta: float, undecided: Undecided) -> PromotionRule:
    """Return the rule for a policy trained on new data: promoted unless it is worse by more than `tolerance`.

    Args:
        tolerance: maximum difference below the champion that counts as not worse.
        resolution: half the distance of the two hypotheses.
        alpha: as in `PromotionRule`.
        beta: as in `PromotionRule`.
        undecided: treatment of a test that is undecided after all seeds: promote within the tolerance, promote so that
            `alpha` bounds every promotion (for suites of many tasks, docs/promotion.md), or hold.
    """
    enough = None if undecided == "hold" else -tolerance
    return PromotionRule(-tolerance - resolution, resolution - tolerance, alpha, beta, enough, undecided == "bounded")


def better(resolution: float, alpha: float, beta: float) -> PromotionRule:
    """Return the rule for a reproduction, which is promoted only if it is better."""
    return PromotionRule(0.0, 2 * resolution, alpha, beta, None)


_MORE = "too few seeds to be sure: raise `evaluate.seeds`"


def look(rule: PromotionRule, found: Paired, last: bool) -> PromotionDecision | None:
    """Take an interim look at the test; return None if the test continues.

    Args:
        rule: the conditions.
        found: all pairs so far.
        last: whether there are no more seeds.
    """
    if found.n == 0:
        nothing = "no trajectory that both finished: nothing to compare"
        return PromotionDecision("hold", 0, 0, 0, None, None, None, None, nothing) if last else None
    above = (rule.high - rule.low) * (found.mean - (rule.low + rule.high) / 2)
    llr = above / (rule.variance(found) if above > 0 else found.variance)
    if llr >= math.log((1 - rule.beta) / rule.alpha):
        return _decision("promote", found, llr, "test passed")
    if llr <= math.log(rule.beta / (1 - rule.alpha)):
        return _decision("reject", found, llr, "test failed")
    if not last:
        return None
    least = rule.least(found)
    if least is None or found.mean < least:
        return _decision("hold", found, llr, "test undecided", f"; {_MORE}")
    risk = f"a candidate worse by {-rule.low:g} would pass with probability {100 * rule.risk(found):.1f} %"
    return _decision("promote", found, llr, "test undecided", f"; {_MORE}; {risk}")


def _grown(found: Paired, mean: float) -> float:
    """Return the increase of the variance of all pairs' mean if that mean were `mean` instead, in [0, 1].

    The likeliest shares of wins and losses whose difference is `mean` solve a quadratic equation (the score interval of
    a paired difference: Tango, Statist. Med. 17, 1998).

    Args:
        found: at least one pair.
        mean: in (-1, 1).
    """
    n, wins, losses = found.n, found.wins, found.losses
    half = ((wins + losses) * (1 + mean) + 2 * mean * (n - losses)) / (4 * n)
    won = half + math.sqrt(max(0.0, half**2 - wins * mean * (1 + mean) / (2 * n)))
    won = min(max(won, mean, 0.0), (1 + mean) / 2)
    return max(0.0, _variance(won, won - mean) - _variance(wins / n, losses / n)) / n


def _variance(won: float, lost: float) -> float:
    return won + lost - (won - lost) ** 2


def without_test(outcome: Outcome, reason: str) -> PromotionDecision:
    """Return the decision on a candidate that is not compared."""
    return PromotionDecision(outcome, 0, 0, 0, None, None, None, None, reason)


_WORDS: dict[Outcome, str] = {"promote": "good enough", "hold": "not clearly good enough", "reject": "not good enough"}


def _decision(outcome: Outcome, found: Paired, llr: float, test: str, more: str = "") -> PromotionDecision:
    at = found.interval
    pairs = counted(found.n, "pair")
    reason = (
        f"{_WORDS[outcome]}: {test} after {pairs} ({found.wins} won, {found.losses} lost); "
        f"difference from the champion {at.mean:+.3f} ({at.low:+.3f} to {at.high:+.3f}){more}"
    )
    return PromotionDecision(outcome, found.n, found.wins, found.losses, at.mean, at.low, at.high, llr, reason)
