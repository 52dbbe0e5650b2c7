"""Computes multi-turn PPO's rewards by reply, advantages by token, and when a critic has settled.

The recipe is UI-TARS-2's (arXiv 2509.02544), after VC-PPO (2503.01491) and VAPO (2504.05118). A trajectory is one
sequence of the policy's tokens over all turns; observations in between are skipped. The last token's reward is the
verified outcome, and the last token of each reply gets the reply's penalties. The papers mention a reward for format
and length, without weights.

Advantages are estimated by generalised advantage estimation over the tokens of a trajectory of many turns:

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t)        A_t = delta_t + gamma lambda A_{t+1}        R_t = A_t + V(s_t)

(arXiv 1506.02438). Tokens that the policy did not generate (screenshots, the environment's answers) are skipped: the
recursion goes from one policy token directly to the next, so values in between have no effect. Only policy tokens have
rewards. Decoupled lambdas are from VC-PPO (arXiv 2503.01491), and the length-adaptive lambda is from VAPO (2504.05118).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from learning.algorithms.advantages import Floats, soft_overlong
from learning.algorithms.groups import Member
from learning.data.files import Rollout
from schemas.config.training import PpoConfig


def advantages(
    rewards: npt.ArrayLike, values: npt.ArrayLike, mask: npt.ArrayLike, gamma: float, lam: npt.ArrayLike
) -> Floats:
    """Computes advantages without whitening, in the shape of `rewards`.

    Args:
        rewards: (..., T), on policy tokens.
        values: (..., T), V before each token.
        mask: (..., T), 1 for policy tokens. For other tokens, the result holds the advantage of the next policy token,
            which the caller leaves out of sums.
        gamma: discount per policy token, in [0, 1].
        lam: lambda in [0, 1], a single one or one per row (...).
    """
    reward, value = (np.asarray(each, dtype=np.float64) for each in (rewards, values))
    own, share = np.asarray(mask, dtype=bool), np.asarray(lam, dtype=np.float64)
    found = np.zeros_like(reward)
    after, ahead = np.zeros(reward.shape[:-1]), np.zeros(reward.shape[:-1])
    for t in range(reward.shape[-1] - 1, -1, -1):
        now = own[..., t]
        delta = reward[..., t] + gamma * after - value[..., t]
        ahead = np.where(now, delta + gamma * share * ahead, ahead)
        after = np.where(now, value[..., t], after)
        found[..., t] = ahead
    return found


def decoupled(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    mask: npt.ArrayLike,
    gamma: float,
    policy_lambda: npt.ArrayLike,
    critic_lambda: npt.ArrayLike = 1.0,
) -> tuple[Floats, Floats]:
    """Computes the policy's advantages and the critic's targets, with a lambda for each.

    With `critic_lambda` 1, the target is the Monte Carlo return, which does not depend on the critic's values.
    """
    policy = advantages(rewards, values, mask, gamma, policy_lambda)
    critic = advantages(rewards, values, mask, gamma, critic_lambda)
    return policy, critic + np.asarray(values, dtype=np.float64)


def length_adaptive_lambda(length: npt.ArrayLike, alpha: float = 0.05) -> Floats:
    """Computes 1 - 1 / (alpha l), so that sum of lambda^t = alpha l; alpha 0.05 as in UI-TARS-2 (arXiv 2509.02544).

    The papers do not define it for l < 1 / alpha, where it would be negative; the result is then 0.

    Args:
        length: l, policy tokens of the whole trajectory, at least 1, any shape. The papers do not define which tokens
            count in a trajectory of many turns; this project counts no tokens of observations.
        alpha: positive.
    """
    return np.maximum(0.0, 1.0 - 1.0 / (alpha * np.asarray(length, dtype=np.float64)))


PATIENCE = 3
"""Number of passes without a gain after which a critic has settled."""
_HELD_OUT = 4
_Kept = TypeVar("_Kept")


def rewarded(groups: Mapping[str, Sequence[Member]], ppo: PpoConfig, limit: int) -> list[Rollout]:
    """Collects all trajectories' steps with their rewards, without environment failures and trajectories without steps.

    Args:
        groups: trajectories by group; `Member.reward` is only the outcome.
        ppo: the penalties of replies.
        limit: the maximum number of tokens of a reply.
    """
    return [
        rollout
        for name, members in groups.items()
        for member in members
        if np.isfinite(member.reward) and member.rollouts
        for rollout in _shaped(name, member, ppo, limit)
    ]


def one_outcome(rollouts: Sequence[Rollout]) -> bool:
    """Checks whether all trajectories have the same sum of rewards, so that there is nothing for a critic to learn."""
    sums: dict[str, float] = {}
    for rollout in rollouts:
        sums[rollout.trajectory_id] = sums.get(rollout.trajectory_id, 0.0) + rollout.reward
    return len({round(value, 9) for value in sums.values()}) < 2


def _shaped(name: str, member: Member, ppo: PpoConfig, limit: int) -> list[Rollout]:
    """Builds the rollouts of a trajectory, with their group, reward and success."""
    rewards = np.full(len(member.rollouts), -ppo.step_cost)
    rewards -= ppo.no_action * np.array(member.without_action)
    if ppo.overlong:
        lengths = [len(rollout.token_ids) for rollout in member.rollouts]
        rewards += soft_overlong(lengths, limit, ppo.overlong) / len(lengths)
    rewards[-1] += member.reward
    return [
        replace(rollout, group_id=name, reward=float(reward), correct=member.success)
        for rollout, reward in zip(member.rollouts, rewards, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Estimates:
    """Advantages, returns and lambdas of a batch of trajectories."""

    advantages: Floats
    """(n,), without whitening."""
    returns: Floats
    """(n,), the critic's targets."""
    lambdas: Floats
    """(trajectories,), the policy's lambdas."""


def estimates(
    rewards: npt.ArrayLike, values: npt.ArrayLike, trajectories: Sequence[npt.NDArray[np.int64]], ppo: PpoConfig
) -> Estimates:
    """Computes advantages and returns over whole trajectories, with separate lambdas for policy and critic.

    Args:
        rewards: (n,) by token.
        values: (n,), V before each token.
        trajectories: ordered token indices of each trajectory; each token belongs to one trajectory.
        ppo: gamma and lambdas.
    """
    reward, value = (np.asarray(each, dtype=np.float64) for each in (rewards, values))
    lengths = np.array([len(tokens) for tokens in trajectories])
    mask = np.arange(lengths.max()) < lengths[:, None]
    index = np.zeros(mask.shape, dtype=np.int64)
    index[mask] = np.concatenate(trajectories)
    fixed = ppo.policy_lambda
    lambdas = (
        length_adaptive_lambda(lengths, ppo.alpha) if fixed == "length" else np.full(len(trajectories), float(fixed))
    )
    policy, critic = decoupled(reward[index], value[index], mask, ppo.gamma, lambdas, ppo.critic_lambda)
    advantages, returns = np.zeros_like(reward), np.zeros_like(reward)
    advantages[index[mask]], returns[index[mask]] = policy[mask], critic[mask]
    return Estimates(advantages, returns, lambdas)


def whitened(advantages: npt.ArrayLike) -> Floats:
    """Scales advantages to mean 0 and standard deviation 1 over all tokens; equal advantages become 0."""
    found = np.asarray(advantages, dtype=np.float64)
    return (found - found.mean()) / max(float(found.std()), 1e-8)


def explained_variance(values: npt.ArrayLike, returns: npt.ArrayLike) -> float:
    """Computes 1 - Var(R - V) / Var(R): 1 for a perfect critic, 0 for a constant, and below 0 for a critic that is
    worse than a constant.

    The result is 0 if all returns are equal, since there is no variance.
    """
    found, asked = (np.asarray(each, dtype=np.float64) for each in (values, returns))
    spread = float(asked.var())
    return 1.0 - float((asked - found).var()) / spread if spread > 1e-12 else 0.0


def held_out(rollouts: Sequence[Rollout]) -> npt.NDArray[np.bool_]:
    """Selects the rollouts on which a critic's explained variance is measured, (n,): every fourth group, or else every
    fourth trajectory.

    A critic could memorise the returns of its training trajectories, so it is measured on other trajectories. All
    rollouts are selected if there are fewer than four trajectories, or if the selected ones all have the same outcome.
    """
    chosen = np.ones(len(rollouts), dtype=bool)
    for names in ([one.group_id for one in rollouts], [one.trajectory_id for one in rollouts]):
        order = {name: number for number, name in enumerate(dict.fromkeys(names))}
        if len(order) < _HELD_OUT:
            continue
        there = np.array([order[name] % _HELD_OUT == _HELD_OUT - 1 for name in names])
        if not one_outcome([one for one, held in zip(rollouts, there, strict=True) if held]):
            return there
    return chosen


@dataclass(frozen=True, slots=True)
class Pretraining:
    """Steps and explained variance of training a critic alone."""

    steps: int
    before: float
    """Explained variance of the held-out trajectories before this training."""
    after: float
    """Explained variance of the kept critic, which is the best of all passes."""


def pretrain(
    step: Callable[[int], None],
    measure: Callable[[], float],
    snapshot: Callable[[], _Kept],
    restore: Callable[[_Kept], None],
    steps_per_pass: int,
    ppo: PpoConfig,
) -> Pretraining:
    """Trains a critic on the rollouts of a fixed policy until its explained variance has settled.

    The papers stop when the explained variance has settled, without a rule, or after a number of steps (VAPO 50,
    Seed1.5-VL 100). This function stops when `PATIENCE` passes in a row did not exceed the previous best by more than
    `value_settled`, and after `value_steps` at the latest.

    Args:
        step: makes the optimiser step with this number.
        measure: computes the explained variance of held-out trajectories. snapshot, restore: copy the critic, and
        restore a copy.
        steps_per_pass: number of steps between two measurements.
        ppo: `value_steps` and `value_settled`.
    """
    before = best = measure()
    kept, taken, idle = snapshot(), 0, 0
    while taken < ppo.value_steps and idle < PATIENCE:
        for _ in range(min(steps_per_pass, ppo.value_steps - taken)):
            step(taken)
            taken += 1
        found = measure()
        idle = 0 if found > best + ppo.value_settled else idle + 1
        if found > best:
            best, kept = found, snapshot()
    restore(kept)
    return Pretraining(taken, before, best)
