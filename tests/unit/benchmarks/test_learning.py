"""The numbers and figures of the learning benchmarks; the arms themselves are turned by the benchmark."""

import math
from pathlib import Path

import pytest

from benchmarks.learning.__main__ import NAMES, _options
from benchmarks.learning._figure import save_points
from benchmarks.learning._sampled import by_seed, estimates, gap, mean_with_interval
from benchmarks.learning.scaling import _share


def test_environment_failures_are_no_attempts() -> None:
    plays = [["a", 1, True, 0, 3], ["a", 1, None, 1, 0], ["a", 1, False, 2, 3], ["b", 1, True, 0, 1]]
    assert by_seed(plays, 7) == {(7, "a", 1): [True, False], (7, "b", 1): [True]}


def test_pass_at_k_is_estimated_where_there_are_k_plays() -> None:
    outcomes = {(0, "a", 1): [True, False, False, False], (0, "a", 2): [True]}
    assert estimates(outcomes, 1) == {(0, "a", 1): 0.25, (0, "a", 2): 1.0}
    assert estimates(outcomes, 2) == {(0, "a", 1): pytest.approx(0.5)}


def test_a_gap_is_over_what_both_arms_played() -> None:
    ours = {(0, "a", 1): 1.0, (0, "a", 2): 0.5, (0, "b", 1): 0.5}
    theirs = {(0, "a", 1): 0.5, (0, "b", 1): 0.0, (0, "c", 1): 1.0}
    assert gap(ours, theirs)["mean"] == pytest.approx(0.5)
    assert math.isnan(mean_with_interval({})["mean"])


def test_a_play_counts_for_every_budget_that_it_needed_or_more() -> None:
    plays = [(True, 2), (False, 1), (True, 4), (False, 9)]
    assert [_share(plays, budget) for budget in (1, 2, 4, 9)] == [0.0, 0.25, 0.5, 0.5]


def test_a_figure_is_a_picture(tmp_path: Path) -> None:
    rows = [{"arm": arm, "panel": "p", "mean": 0.5, "low": 0.25, "high": math.inf} for arm in ("a", "b")]
    save_points(rows, tmp_path / "out" / "figure.png", "arm", "panel", "A title")
    assert (tmp_path / "out" / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_every_name_says_what_it_measures_and_short_runs_on_the_fake_sandbox() -> None:
    for name in NAMES:
        options = _options([name, "--short"])
        assert "environment.kind=fake" in options.words and options.seeds == 1
    with pytest.raises(SystemExit):
        _options(["nothing"])
