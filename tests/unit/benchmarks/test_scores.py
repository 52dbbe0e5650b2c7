"""Numbers by which scores are measured, against ones that are known."""

import numpy as np
import pytest

from benchmarks.scores import area, best_f1, calibration_error, f1_interval, quality

SCORES, KNOWN = np.array([0.9, 0.8, 0.7, 0.7, 0.2, 0.1]), np.array([True, True, False, True, False, False])


def test_the_area_is_the_chance_that_a_success_scores_higher_and_a_tie_counts_half() -> None:
    pairs = [(one > other) + 0.5 * (one == other) for one in SCORES[KNOWN] for other in SCORES[~KNOWN]]
    assert area(SCORES, KNOWN) == pytest.approx(sum(pairs) / len(pairs))
    assert area(np.ones(6), KNOWN) == 0.5 and area(KNOWN.astype(float), KNOWN) == 1.0
    assert area(SCORES, np.ones(6, bool)) is None and area(SCORES, np.zeros(6, bool)) is None


def test_a_score_that_is_a_probability_has_no_calibration_error() -> None:
    scores, known = np.repeat([0.25, 0.75], 4), np.array([True, False, False, False, True, True, True, False])
    assert calibration_error(scores, known) == 0
    assert calibration_error(np.ones(8), known) == 0.5


def test_counts_and_rates_are_those_at_the_threshold() -> None:
    found = quality(SCORES, KNOWN, 0.7)
    assert (found["F1"], found["false accepts"], found["precision"], found["recall"]) == (6 / 7, 1, 3 / 4, 1.0)
    assert found["Brier"] == pytest.approx(((SCORES - KNOWN) ** 2).mean())
    assert best_f1(SCORES, KNOWN) == 0.7
    low, high = f1_interval(SCORES >= 0.7, KNOWN)
    assert low < 6 / 7 <= high <= 1
