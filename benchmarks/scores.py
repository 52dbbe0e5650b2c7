"""Measure scores in [0, 1] as an order (ROC AUC), as probabilities (Brier, ECE), and as decisions (F1)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from curation.agreement import confusion_of

Scores = npt.NDArray[np.float64]
Known = npt.NDArray[np.bool_]
BINS = 10


def quality(scores: Scores, known: Known, threshold: float) -> dict[str, Any]:
    """Return counts and rates at a threshold, and measures that need none.

    Args:
        scores: (n,) in [0, 1].
        known: (n,) whether each is a success.
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


def area(scores: Scores, known: Known) -> float | None:
    """Return the area under the ROC, P(a success scores higher than a failure), ties as half.

    None where all are successes or all are failures.
    """
    if known.all() or not known.any():
        return None
    pairs = int(known.sum()) * int((~known).sum())
    return float(stats.mannwhitneyu(scores[known], scores[~known]).statistic) / pairs


def calibration_error(scores: Scores, known: Known) -> float:
    """Return the expected calibration error: |mean score - share of successes| by bin (arXiv 1706.04599)."""
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(bins, scores - known)).sum() / len(scores))


def f1_interval(accepted: Known, known: Known) -> tuple[float, float]:
    """Return the 95 % interval of F1 over trajectories drawn with replacement."""

    def f1(accepted: Known, known: Known, axis: int) -> npt.NDArray[np.float64]:
        both, either = (accepted & known).sum(axis), accepted.sum(axis) + known.sum(axis)
        return 2 * both / np.maximum(either, 1)

    drawn = stats.bootstrap((accepted, known), f1, n_resamples=1000, paired=True, method="percentile", rng=0)
    return float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)


def best_f1(scores: Sequence[float] | Scores, known: Known) -> float:
    """Return the threshold with the best F1."""
    values = np.asarray(scores)
    found = {float(one): confusion_of((values >= one).tolist(), known.tolist()).f1 or 0.0 for one in np.unique(values)}
    return max(found, key=lambda one: (found[one], one))
