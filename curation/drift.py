"""Measure drift: the difference between new and earlier collected data.

The measure is the population stability index, the symmetrised Kullback-Leibler divergence of two histograms (Siddiqi,
Credit Risk Scorecards, 2006, chapter 6: below 0.1 no change, above 0.25 a shift):

    PSI = sum over categories of (p - q) ln(p / q)

With n and m observations of k categories and no shift at all, PSI / (1 / n + 1 / m) follows a chi-squared distribution
of k - 1 degrees of freedom (Yurdakul and Naranjo, Statistical properties of the population stability index, Journal of
Risk Model Validation 14(4), 2020). Small iterations differ by chance; a difference within chance is no drift.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt

HALF = 0.5
"""Added to every count (Jeffreys), so that an empty category does not divide by zero."""
ONE_IN_THOUSAND = 3.0902
"""The normal quantile of 0.999."""
SHOWN = 3
"""Maximum number of categories named in a sentence."""


@dataclass(frozen=True, slots=True)
class HistogramDrift:
    """Difference of two histograms."""

    psi: float
    """Population stability index, 0 or more."""
    chance: float
    """Upper limit of the index for 999 of 1000 pairs of histograms of one population."""
    now: int
    """Number of new observations."""
    before: int
    moved: tuple[str, ...]
    """The categories with the largest changes, with their shares before and now."""

    def beyond(self, limit: float) -> bool:
        """Whether the index exceeds both a limit and chance."""
        return self.psi > max(limit, self.chance)


def drift(now: Mapping[str, int], before: Mapping[str, int]) -> HistogramDrift | None:
    """Measure the drift from one histogram to another, by category; None if one of them is empty."""
    names = sorted({*now, *before})
    new, old = [now.get(name, 0) for name in names], [before.get(name, 0) for name in names]
    n, m = sum(new), sum(old)
    if not n or not m:
        return None
    shares = sorted(zip(names, new, old, strict=True), key=lambda one: -abs(one[1] / n - one[2] / m))
    moved = tuple(
        f"{name} {100 * b / m:.0f} % to {100 * a / n:.0f} %" for name, a, b in shares[:SHOWN] if a / n != b / m
    )
    return HistogramDrift(psi(new, old), chance(len(names), n, m), n, m, moved)


def psi(now: Sequence[int], before: Sequence[int]) -> float:
    """Compute the population stability index of two histograms over the same categories."""
    k, n, m = len(now), sum(now), sum(before)
    pairs = [((a + HALF) / (n + HALF * k), (b + HALF) / (m + HALF * k)) for a, b in zip(now, before, strict=True)]
    return sum((p - q) * log(p / q) for p, q in pairs)


def chance(categories: int, n: int, m: int, z: float = ONE_IN_THOUSAND) -> float:
    """Return the quantile of the index without a shift, at the probability of the normal quantile `z`.

    The chi-squared quantile is Wilson and Hilferty's (1931).
    """
    freedom = categories - 1
    if freedom < 1:
        return 0.0
    part = 2 / (9 * freedom)
    return freedom * (1 - part + z * sqrt(part)) ** 3 * (1 / n + 1 / m)
