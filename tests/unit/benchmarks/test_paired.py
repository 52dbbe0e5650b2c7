"""Paired differences of two arms and their two intervals."""

import math

import numpy as np
import pytest

from benchmarks.paired import bootstrap, difference, mean_with_interval, outcomes


def test_only_trajectories_that_both_arms_made_are_paired():
    ours = {(0, "a", 1): True, (0, "a", 2): True, (0, "b", 1): False}
    theirs = {(0, "a", 1): False, (0, "a", 2): True, (1, "a", 1): True}
    found = difference(ours, theirs)
    assert (found.mean, found.n, found.clustered) == (0.5, 2, 1)


def test_outcomes_are_those_of_the_asked_rows_without_environment_failures():
    plays = [["a", 1, True], ["a", 2, None], ["b", 1, False, 0, 3]]
    rows = [{"arm": arm, "seed": 7, "plays": plays} for arm in ("x", "y")]
    assert outcomes(rows, arm="x") == {(7, "a", 1): True, (7, "b", 1): False} and outcomes(rows, arm="z") == {}


def test_without_a_shared_play_there_is_no_number():
    assert math.isnan(mean_with_interval({})["mean"])
    found = difference({(0, "a", 1): True}, {(1, "a", 1): True})
    assert (
        math.isnan(found.mean) and math.isnan(found.trajectories[0]) and math.isnan(found.clusters[1]) and found.n == 0
    )


def test_where_clusters_agree_inside_the_interval_over_them_is_wider_than_over_trajectories():
    ours = {(seed, "a", trajectory): seed % 2 == 0 for seed in range(6) for trajectory in range(40)}
    theirs = {key: False for key in ours}
    found = difference(ours, theirs)
    assert found.mean == 0.5
    assert found.clusters[0] < found.trajectories[0] - 0.1 and found.clusters[1] > found.trajectories[1] + 0.1


def test_where_trajectories_are_independent_both_intervals_agree():
    draw = np.random.default_rng(0)
    keys = [(seed, task, trajectory) for seed in range(10) for task in "abcdef" for trajectory in range(20)]
    found = difference(
        {key: bool(draw.random() < 0.7) for key in keys}, {key: bool(draw.random() < 0.5) for key in keys}
    )
    for one, other in zip(found.trajectories, found.clusters, strict=True):
        assert one == pytest.approx(other, abs=0.02)


def test_one_cluster_alone_says_nothing_of_others():
    assert bootstrap([[0.0, 1.0, 1.0]]) == (-math.inf, math.inf)


def test_the_interval_of_the_bootstrap_covers_the_truth_about_as_often_as_it_says():
    draw, hits = np.random.default_rng(3), 0
    for _ in range(120):
        low, high = bootstrap([[float(x) for x in draw.normal(draw.normal(0.3, 1.0), 0.2, 5)] for _ in range(25)], 400)
        hits += low <= 0.3 <= high
    assert 0.86 <= hits / 120 <= 1.0
