"""PPO's own arithmetic: rewards by reply, estimates over the turns of a trajectory, when a critic has settled."""

import math
from dataclasses import replace

import numpy as np
import pytest

from learning.algorithms.groups import Member
from learning.algorithms.returns import (
    PATIENCE,
    Pretraining,
    advantages,
    estimates,
    explained_variance,
    held_out,
    one_outcome,
    pretrain,
    rewarded,
    whitened,
)
from learning.data.files import Rollout
from schemas.config.training import PpoConfig

CLICK, NOTHING = "Action: click(start_box='(500,250)')", "Hm."
PPO = PpoConfig(no_action=0.0)
THRESHOLD = 0.8
"""From which outcome on these tasks are solved."""


def member(name: str, outcome: float, *replies: str, tokens: int = 3) -> Member:
    rollouts = tuple(
        Rollout(name, step, "t/a", ("s",), "i", (), reply, (1,) * tokens, (-1.0,) * tokens)
        for step, reply in enumerate(replies)
    )
    without = tuple(reply == NOTHING for reply in replies)
    return Member(1, outcome, rollouts, without, success=outcome >= THRESHOLD)


def test_the_outcome_stands_on_the_last_reply_alone() -> None:
    found = rewarded({"g": [member("a", 1.0, CLICK, CLICK, CLICK), member("b", 0.0, CLICK)]}, PPO, 32)
    assert [one.reward for one in found] == [0.0, 0.0, 1.0, 0.0]
    assert [one.correct for one in found] == [True, True, True, False]


def test_a_reward_below_the_threshold_is_paid_and_is_no_success_to_imitate() -> None:
    found = rewarded({"g": [member("a", 0.8, CLICK), member("b", 0.7, CLICK)]}, PPO, 32)
    assert [(one.reward, one.correct) for one in found] == [(0.8, True), (0.7, False)]
    assert {one.group_id for one in found} == {"g"}


def test_a_reply_without_an_action_is_punished_where_it_was_said() -> None:
    (first, second) = rewarded({"g": [member("a", 0.0, CLICK, NOTHING)]}, PpoConfig(no_action=0.25), 32)
    assert (first.reward, second.reward) == (0.0, -0.25)


def test_every_reply_costs_what_is_configured_and_long_ones_more() -> None:
    found = rewarded({"g": [member("a", 1.0, CLICK, CLICK, tokens=15)]}, PpoConfig(step_cost=0.125, overlong=4), 16)
    assert [one.reward for one in found] == pytest.approx([-0.125 - 0.375, 1 - 0.125 - 0.375])


def test_environment_failures_and_trajectories_without_a_step_never_enter() -> None:
    groups = {"g": [member("dead", math.nan, CLICK), member("none", 0.0), member("a", 1.0, CLICK)]}
    assert [one.trajectory_id for one in rewarded(groups, PPO, 32)] == ["a"]


def test_trajectories_of_one_reward_teach_nothing_and_a_punished_one_does() -> None:
    same = {"g": [member("a", 0.0, CLICK), member("b", 0.0, CLICK, NOTHING)]}
    assert one_outcome(rewarded(same, PPO, 32)) and one_outcome([])
    assert not one_outcome(rewarded(same, PpoConfig(no_action=0.1), 32))


def test_estimates_run_over_all_turns_of_a_trajectory_and_of_no_other() -> None:
    rewards, values = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 5.0]), np.array([0.2, 0.3, 0.6, 0.7, 9.0, -9.0])
    first, other = np.array([0, 1, 2, 3]), np.array([4, 5])
    found = estimates(rewards, values, [first, other], PpoConfig(policy_lambda=0.95))
    assert found.advantages[:4] == pytest.approx([0.732462, 0.665750, 0.385, 0.3], abs=1e-6)
    assert found.returns == pytest.approx([1, 1, 1, 1, 5, 5])
    alone = advantages(rewards[other], values[other], np.ones(2), 1.0, 0.95)
    assert found.advantages[4:] == pytest.approx(alone)


def test_tokens_are_taken_in_the_order_in_which_they_were_said() -> None:
    rewards, values = np.array([1.0, 0.0, 0.0]), np.zeros(3)
    found = estimates(rewards, values, [np.array([2, 1, 0])], PpoConfig(policy_lambda=0.5))
    assert found.advantages == pytest.approx([1.0, 0.5, 0.25])


def test_the_policys_lambda_grows_with_its_tokens_and_the_critic_learns_the_return_all_the_same() -> None:
    rewards = np.zeros(440)
    rewards[[39, 439]] = 1.0
    trajectories = [np.arange(40), np.arange(40, 440)]
    found = estimates(rewards, np.zeros(440), trajectories, PpoConfig(alpha=0.05))
    assert found.lambdas == pytest.approx([0.5, 0.95])
    assert found.advantages[39 - 3] == pytest.approx(0.5**3)
    assert found.advantages[439 - 3] == pytest.approx(0.95**3)
    assert found.returns == pytest.approx(np.ones(440))
    coupled = estimates(rewards, np.zeros(440), trajectories, PpoConfig(policy_lambda=0.5, critic_lambda=0.5))
    assert coupled.returns == pytest.approx(coupled.advantages)


def test_whitening_gives_mean_0_and_deviation_1_and_leaves_equal_advantages_at_0() -> None:
    found = whitened([1.0, 2.0, 6.0])
    assert found.mean() == pytest.approx(0.0) and found.std() == pytest.approx(1.0)
    assert whitened([3.0, 3.0]).tolist() == [0.0, 0.0]


def test_explained_variance_is_1_for_the_returns_0_for_a_constant_and_below_for_worse() -> None:
    returns = np.array([0.0, 1.0, 1.0, 0.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(returns + 7.0, returns) == 1.0
    assert explained_variance(np.full(4, 0.3), returns) == 0.0
    assert explained_variance(1 - returns, returns) == pytest.approx(-3.0)
    assert explained_variance(0.5 * returns, returns) == pytest.approx(0.75)
    assert explained_variance(returns, np.ones(4)) == 0.0


def rollouts(groups: int, trajectories: int) -> list[Rollout]:
    bare = Rollout("", 0, "t/a", (), "i", (), CLICK)
    return [
        replace(bare, trajectory_id=f"{group}-{number}", group_id=str(group), step=step, reward=float(step and number))
        for group in range(groups)
        for number in range(trajectories)
        for step in range(2)
    ]


def test_a_critic_is_measured_on_whole_groups_that_it_does_not_learn_from() -> None:
    made = rollouts(8, 2)
    out = held_out(made)
    assert {one.group_id for one, there in zip(made, out, strict=True) if there} == {"3", "7"}
    assert {one.group_id for one, there in zip(made, out, strict=True) if not there} == {"0", "1", "2", "4", "5", "6"}


def test_with_few_groups_whole_trajectories_are_left_out_and_with_few_trajectories_none() -> None:
    made = rollouts(1, 12)
    shown = [replace(one, reward=one.reward * (int(one.trajectory_id[2:]) > 5)) for one in made]
    chosen = {one.trajectory_id for one, there in zip(shown, held_out(shown), strict=True) if there}
    assert chosen == {"0-3", "0-7", "0-11"}
    assert held_out(rollouts(1, 2)).all()


def fitted(measured: list[float], **config: object) -> tuple[list[int], Pretraining, int]:
    """Steps taken, what was measured, and which measurement's critic was kept."""
    steps, seen, kept = [], iter(range(len(measured))), []
    now = -1

    def measure() -> float:
        nonlocal now
        now = next(seen)
        return measured[now]

    found = pretrain(steps.append, measure, lambda: now, kept.append, 2, PpoConfig.model_validate(config))
    return steps, found, kept[-1]


def test_a_critic_is_trained_until_it_has_settled_and_its_best_is_kept() -> None:
    steps, found, kept = fitted([0.0, 0.5, 0.8, 0.805, 0.79, 0.8, 0.99], value_steps=100)
    assert steps == list(range(2 * (2 + PATIENCE)))
    assert (found.steps, found.before, found.after, kept) == (10, 0.0, 0.805, 3)


def test_a_critic_that_goes_on_learning_ends_at_the_bound() -> None:
    steps, found, kept = fitted([0.0, 0.1, 0.2, 0.3], value_steps=5)
    assert steps == [0, 1, 2, 3, 4] and (found.steps, kept) == (5, 3)


def test_no_steps_leave_the_critic_as_it_is() -> None:
    steps, found, kept = fitted([0.25], value_steps=0)
    assert steps == [] and (found.steps, found.before, found.after, kept) == (0, 0.25, 0.25, 0)
