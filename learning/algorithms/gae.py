"""Generalised advantage estimation over the tokens of a trajectory of many turns.

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t)        A_t = delta_t + gamma lambda A_{t+1}        R_t = A_t + V(s_t)

(arXiv 1506.02438). Tokens that the policy did not generate (screenshots, the environment's answers) are skipped: the
recursion goes from one policy token straight to the next, so values in between change nothing. Rewards lie on policy
tokens. Decoupled lambdas are those of VC-PPO (arXiv 2503.01491), the length-adaptive one is VAPO's (2504.05118).
"""

import numpy as np
import numpy.typing as npt

from learning.algorithms.advantages import Floats


def advantages(
    rewards: npt.ArrayLike, values: npt.ArrayLike, mask: npt.ArrayLike, gamma: float, lam: npt.ArrayLike
) -> Floats:
    """Computes advantages, not whitened, of the shape of `rewards`.

    Args:
        rewards: (..., T), on policy tokens.
        values: (..., T), V before each token.
        mask: (..., T), 1 for policy tokens. Where it is 0, the result holds the advantage of the next policy token; the
            caller leaves it out of sums.
        gamma: discount per policy token, in [0, 1].
        lam: in [0, 1], one or one per row (...).
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
    """Computes the policy's advantages and the critic's targets, each by its own lambda.

    With `critic_lambda` 1 the target is the Monte Carlo return, which no wrong value can bias.
    """
    policy = advantages(rewards, values, mask, gamma, policy_lambda)
    critic = advantages(rewards, values, mask, gamma, critic_lambda)
    return policy, critic + np.asarray(values, dtype=np.float64)


def length_adaptive_lambda(length: npt.ArrayLike, alpha: float = 0.05) -> Floats:
    """Computes 1 - 1 / (alpha l), so that sum of lambda^t = alpha l; alpha 0.05 as in UI-TARS-2 (arXiv 2509.02544).

    Where it would be negative (l < 1 / alpha; the papers are silent) it is 0.

    Args:
        length: l, policy tokens of the whole trajectory, at least 1, any shape. The papers do not define which tokens
            count in a trajectory of many turns: here observations do not.
        alpha: positive.
    """
    return np.maximum(0.0, 1.0 - 1.0 / (alpha * np.asarray(length, dtype=np.float64)))
