from learning.promotion import decide


def plays(*successes: bool | None):
    return {("task", seed): success for seed, success in enumerate(successes)}


def test_a_candidate_that_is_better_on_the_same_seeds_is_promoted():
    decision = decide(plays(True, True, True), plays(False, False, True), tolerance=0.0)
    assert decision.promoted
    assert decision.difference > 0.6


def test_a_candidate_that_is_worse_beyond_the_tolerance_is_not():
    assert not decide(plays(False, False, True), plays(True, True, True), tolerance=0.02).promoted


def test_an_environment_failure_enters_no_comparison():
    decision = decide(plays(True, None, False), plays(True, True, None), tolerance=0.0)
    assert decision.pairs == 1
    assert decision.difference == 0.0


def test_nothing_to_compare_is_no_promotion():
    assert not decide({}, plays(True), tolerance=1.0).promoted


def test_equal_is_not_worse():
    assert decide(plays(True, False), plays(False, True), tolerance=0.0).promoted
