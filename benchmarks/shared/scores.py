"""How good scores in [0, 1] are: as an order (ROC), as probabilities (Brier, ECE), and as decisions (F1)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from curation.agreement import confusion_of

Scores = npt.NDArray[np.float64]
Known = npt.NDArray[np.bool_]
BINS = 10


def quality(scores: Scores, known: Known, threshold: float) -> dict[str, Any]:
    """Counts and rates at the threshold, and what does not depend on it.

    Args:
        scores: (n,) in [0, 1].
        known: (n,) whether it was a success.
        threshold: from which one is accepted.
    """
    found = confusion_of((scores >= threshold).tolist(), known.tolist())
    low, high = f1_interval(scores >= threshold, known)
    return {
        "n": found.n,
        "successes": int(known.sum()),
        "F1": found.f1,
        "F1 low": low,
        "F1 high": high,
        "precision": found.precision,
        "recall": found.recall,
        "false accepts": found.false_positives,
        "of failures": found.false_accept_rate,
        "kappa": found.kappa,
        "ROC AUC": area(scores, known),
        "Brier": float(((scores - known) ** 2).mean()),
        "ECE": calibration_error(scores, known),
    }


def roc(scores: Scores, known: Known) -> list[tuple[float, float]]:
    """(share of failures accepted, share of successes accepted) at every threshold, from none accepted to all."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)  # equal scores are accepted together
    hits, misses = np.cumsum(known[order])[last], np.cumsum(~known[order])[last]
    rates = zip(misses / max(1, misses[-1]), hits / max(1, hits[-1]), strict=True)
    return [(0.0, 0.0), *((float(one), float(other)) for one, other in rates)]


def area(scores: Scores, known: Known) -> float | None:
    """Area under the ROC: P(a success scores higher than a failure), ties count half; None where there is only one of
    the two."""
    if known.all() or not known.any():
        return None
    points = np.array(roc(scores, known))
    return float(np.trapezoid(points[:, 1], points[:, 0]))


def reliability(scores: Scores, known: Known) -> list[tuple[float, float, int]]:
    """(mean score, share of successes, count) of ten bins of equal width; empty ones are left out."""
    places = np.minimum((scores * BINS).astype(int), BINS - 1)
    return [
        (float(scores[places == one].mean()), float(known[places == one].mean()), int((places == one).sum()))
        for one in range(BINS)
        if (places == one).any()
    ]


def calibration_error(scores: Scores, known: Known) -> float:
    """Expected calibration error: |mean score - share of successes| by bin, weighed by count (arXiv 1706.04599)."""
    return sum(abs(mean - share) * count for mean, share, count in reliability(scores, known)) / len(scores)


def f1_interval(accepted: Known, known: Known, draws: int = 1000) -> tuple[float, float]:
    """95 % of F1 over trajectories drawn with replacement."""
    picked = np.random.default_rng(0).integers(0, len(known), (draws, len(known)))
    both, either = (accepted & known)[picked].sum(1), accepted[picked].sum(1) + known[picked].sum(1)
    low, high = np.quantile(2 * both / np.maximum(either, 1), [0.025, 0.975])
    return float(low), float(high)


def best_f1(scores: Sequence[float] | Scores, known: Known) -> float:
    """The score from which accepting has the best F1."""
    values = np.asarray(scores)
    found = {float(one): confusion_of((values >= one).tolist(), known.tolist()).f1 or 0.0 for one in np.unique(values)}
    return max(found, key=lambda one: (found[one], one))
