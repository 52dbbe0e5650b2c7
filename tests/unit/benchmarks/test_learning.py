"""The numbers of the learning benchmarks; the arms themselves are turned by the benchmark."""

import asyncio
import math
import random

import pytest

from benchmarks.learning.__main__ import NAMES, _options
from benchmarks.learning._slow_sandbox import SlowConfig, SlowEnvironment, SlowSandbox
from benchmarks.learning._start import FAKE, SHORT
from benchmarks.learning.curriculum import SETTINGS, champions, interval, needed, reached, run_seeds
from benchmarks.learning.methods import ARMS, COMPARED, differences, holm, overrides_of
from benchmarks.learning.scaling import _precision_rows, _share, by_seed, estimates
from benchmarks.learning.streaming import SLOW
from environments.catalog import catalog
from environments.registry import environments_of
from schemas.config import load_config
from tests.fixtures.sentences import Sentences


def test_environment_failures_are_no_attempts() -> None:
    trajectories = [["a", 1, True, 0, 3], ["a", 1, None, 1, 0], ["a", 1, False, 2, 3], ["b", 1, True, 0, 1]]
    assert by_seed(trajectories, 7) == {(7, "a", 1): [True, False], (7, "b", 1): [True]}


def test_pass_at_k_is_estimated_where_there_are_k_trajectories() -> None:
    outcomes = {(0, "a", 1): [True, False, False, False], (0, "a", 2): [True]}
    assert estimates(outcomes, 1) == {(0, "a", 1): 0.25, (0, "a", 2): 1.0}
    assert estimates(outcomes, 2) == {(0, "a", 1): pytest.approx(0.5)}


def test_p_values_are_corrected_by_holm_as_in_statsmodels() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0] and holm([]) == []
    assert holm([math.nan, 0.02]) == pytest.approx([math.nan, 0.02], nan_ok=True)


def test_every_arm_changes_what_it_is_named_after_and_is_compared() -> None:
    config = load_config("laptop", ["collect.trajectories_per_task=60", "train.steps=300", "train.batch=16"])
    assert {arm for pair in COMPARED for arm in pair} == {*ARMS}
    made = {arm: load_config("laptop", overrides_of(arm, config, 2400, 3000.0)) for arm in ARMS}
    assert len({one.canonical() for one in made.values()}) == len(ARMS)
    assert made["loop"].canonical() == load_config("laptop").canonical()
    assert made["supervised"].train.steps == 250  # 3,000 passes x 4/3, in batches of 16
    assert made["grpo"].train.group.groups == (17 * 60 + 40) // 4
    corrected = made["corrections"]
    assert (corrected.reflect.steps, corrected.collect.trajectories_per_task) == (1200, 30)
    continual = made["continual"].train
    assert continual.steps + continual.ct.steps == 300 and continual.ct_every == 1


def test_an_arm_is_compared_with_the_loop_by_run_seed() -> None:
    success = {"start": [0.1, 0.1, 0.1], "loop": [0.8, 0.7, 0.9], "explorer data": [0.7, 0.6, 0.7], "uniform": [0.9]}
    rows = [
        {"arm": arm, "seed": seed, "success": one} for arm, values in success.items() for seed, one in enumerate(values)
    ]
    explorer, uniform = differences(rows)
    assert explorer["difference"] == "loop - explorer data" and explorer["seeds"] == 3
    assert explorer["mean"] == pytest.approx(0.4 / 3)
    assert (explorer["low"], explorer["high"]) == pytest.approx((-0.0101, 0.2768), abs=1e-3)  # t of 2 degrees: 4.303
    assert uniform["mean"] == pytest.approx(-0.1) and math.isinf(uniform["high"]) and math.isnan(uniform["p"])


def test_a_play_counts_for_every_budget_that_it_needed_or_more() -> None:
    trajectories = [(True, 2), (False, 1), (True, 4), (False, 9)]
    assert [_share(trajectories, budget) for budget in (1, 2, 4, 9)] == [0.0, 0.25, 0.5, 0.5]


def test_precisions_are_compared_on_the_trajectories_that_both_made() -> None:
    full = {(0, "a", 1): True, (0, "a", 2): True, (0, "b", 1): False}
    int8 = {(0, "a", 1): True, (0, "a", 2): False}
    rows = {row["precision"]: row["mean"] for row in _precision_rows({"full": full, "int8": int8})}
    assert rows == {"full": pytest.approx(2 / 3), "int8": 0.5, "int8 - full": -0.5}


def test_slow_pages_are_the_same_for_every_arm_and_have_a_heavy_tail() -> None:
    environment = SlowEnvironment("fake", SlowConfig())

    async def delays() -> list[float]:
        found, host = [], environment.host()
        for seed in (1, 1, 2):
            sandbox = host.sandbox()
            assert isinstance(sandbox, SlowSandbox)
            await sandbox.start(environment.task("click-target"), seed)
            found.append(sandbox.delay_s)
        return found

    first, second = asyncio.run(delays()), asyncio.run(delays())
    assert first == second and len(set(first)) == 3
    law = SlowConfig(least_s=1.0, tail=1.2, most_s=50.0)
    drawn = [law.draw(random.Random(number)) for number in range(4000)]
    assert min(drawn) >= 1.0 and max(drawn) == 50.0
    assert sum(one > 10.0 for one in drawn) / 4000 == pytest.approx(10**-1.2, abs=0.015)


def test_the_arms_of_streaming_are_slow_by_config_alone() -> None:
    config = load_config("configs/laptop.toml", [*SHORT, *SLOW])
    (environment,) = environments_of(config)
    assert isinstance(environment, SlowEnvironment) and environment.size == 24
    assert catalog(config)[0].task_id == "fake/click-target"


def test_every_name_says_what_it_measures_and_short_runs_on_the_fake_sandbox() -> None:
    for name in NAMES:
        options = _options([name, "--short"])
        assert FAKE in options.overrides and options.seeds == 1
    with pytest.raises(SystemExit):
        _options(["nothing"])


def test_a_policy_that_was_not_promoted_does_not_reign_and_trajectories_add_up() -> None:
    iterations = [
        {"trajectories": 5, "promoted": False, "policy": "a"},
        {"trajectories": 5, "promoted": True, "policy": "b"},
        {"trajectories": 20, "promoted": False, "policy": "c"},
        {"trajectories": 10, "promoted": True, "policy": "d"},
    ]
    assert champions(iterations) == [(5, None), (10, "b"), (30, "b"), (40, "d")]


def test_a_success_is_reached_with_the_trajectories_of_its_first_iteration_or_never() -> None:
    curve = [(10, 0.5), (30, 0.8), (40, 0.7)]
    assert [reached(curve, at) for at in (0.5, 0.6, 0.9)] == [10.0, 30.0, math.inf]


def test_the_share_is_of_the_mean_over_run_seeds_and_infinite_if_it_is_never_reached() -> None:
    uniform = [(10, 0.1), (20, 0.2), (30, 0.3), (40, 0.4)]
    early, late = [(10, 0.4), (20, 0.5), (30, 0.5), (40, 0.5)], [(10, 0.1), (20, 0.1), (30, 0.3), (40, 0.5)]
    never = [(collected, 0.0) for collected, _ in uniform]
    assert [needed([(one, uniform)])["share"] for one in (early, late, never)] == [0.25, 1.0, math.inf]
    both = [(early, uniform), (late, uniform)]
    assert needed(both)["share"] == 0.75 and needed(both)["target"] == pytest.approx(0.4)
    assert interval(both) == (0.25, 1.0) and interval(both[:1]) == (0.25, 0.25)


def test_a_curve_against_itself_needs_exactly_as_many_trajectories() -> None:
    for curve in ([(10, 0.2), (20, 0.6), (30, 0.5), (40, 0.5)], [(10, 0.1), (20, 0.3), (30, 0.3)], [(10, 0.0)]):
        assert needed([(curve, curve)])["share"] == 1.0
        assert interval([(curve, curve)] * 3) == (1.0, 1.0)


def test_uniform_sampling_is_charged_its_first_crossing_too() -> None:
    uniform = [(10, 0.1), (20, 0.5), (30, 0.4), (40, 0.5)]
    ours = [(10, 0.5), (20, 0.6), (30, 0.6), (40, 0.6)]
    assert needed([(ours, uniform)])["uniform"] == 20 and needed([(ours, uniform)])["share"] == 0.5


def test_the_curriculum_is_measured_with_its_own_weights_on_run_seeds_that_no_choice_has_seen(
    sentence: Sentences,
) -> None:
    assert run_seeds(3) == [21, 22, 23] and run_seeds("30,40") == [30, 40]
    with sentence.raises(SystemExit):
        run_seeds("5,30")
    assert not any(key.startswith("curriculum.") for overrides in SETTINGS.values() for key in overrides)
    options = _options(["curriculum", "--seeds", "30,40", "--environment", "fake"])
    assert options.seeds == "30,40" and options.environment == "fake" and _options(["curriculum"]).environment is None
    with pytest.raises(SystemExit):
        _options(["rl", "--seeds", "1,2"])
