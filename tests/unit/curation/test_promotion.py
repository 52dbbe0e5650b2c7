from curation.promotion import decide


def test_a_candidate_that_is_better_on_the_same_seeds_is_promoted():
    assert decide(0.6, 0.5, 0.7, 100, tolerance=0.0).promoted


def test_equal_is_not_worse():
    assert decide(0.0, -0.1, 0.1, 100, tolerance=0.0).promoted


def test_a_candidate_that_is_worse_within_the_tolerance_still_plays_next():
    assert decide(-0.01, -0.05, 0.03, 100, tolerance=0.02).promoted
    assert not decide(-0.03, -0.05, 0.01, 100, tolerance=0.02).promoted


def test_nothing_to_compare_is_no_promotion():
    decision = decide(float("nan"), float("nan"), float("nan"), 0, tolerance=1.0)
    assert not decision.promoted
    assert "nothing to compare" in decision.reason
