"""Computes advantages of whole trajectories from the rewards of their group.

GRPO (arXiv 2402.03300): A_i = (R_i - mean) / std. The standard deviation is that of the population (over N), so that
pass@1 equals Pass@k with k = 1 (`learning.algorithms.passk`). Public code (verl) uses the standard deviation of a
sample (over N - 1), as `ddof=1` does.

NaN as a reward marks an environment failure: it enters no mean, and its advantage is 0. If all rewards are equal, all
advantages are 0. A group of one trajectory has the advantage 0 (verl uses its reward). Rewards lie in [-1, 1]; rewards
that differ by less than `SAME`, the rounding of a sum, count as equal.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
SAME = 1e-9
"""Maximum difference between rewards that count as equal."""
Estimator = Callable[[Floats], Floats]
"""Advantages (n,) of one group's rewards (n,), none of them missing."""


def centred(rewards: Floats, ddof: int = 0) -> Floats:
    """Computes GRPO's z-scores (n,) of one group's rewards (n,); all 0 if the rewards are equal."""
    if len(rewards) <= ddof or np.ptp(rewards) <= SAME:
        return np.zeros(len(rewards))
    return (rewards - rewards.mean()) / rewards.std(ddof=ddof)


def of_group(rewards: npt.ArrayLike, estimator: Estimator = centred) -> Floats:
    """Computes an estimator's advantages of one group without its environment failures (NaN).

    Args:
        rewards: (n,), NaN where the environment failed.
        estimator: function of the group's rewards without environment failures.

    Returns:
        (n,), 0 for environment failures.
    """
    found = np.asarray(rewards, dtype=np.float64)
    valid = np.isfinite(found)
    advantages = np.zeros(len(found))
    if valid.any():
        advantages[valid] = estimator(found[valid])
    return advantages


def is_informative(rewards: npt.ArrayLike, spread: float = 0.0) -> bool:
    """Checks whether a group has information: two of its valid rewards differ (dynamic sampling, arXiv 2503.14476).

    Args:
        rewards: (n,), NaN where the environment failed.
        spread: minimum distance of the best reward from the mean (prompt curation, Seed1.5-VL, arXiv 2505.07062).
    """
    found = np.asarray(rewards, dtype=np.float64)
    found = found[np.isfinite(found)]
    return len(found) > 1 and bool(np.ptp(found) > SAME) and bool(found.max() - found.mean() >= spread)


def soft_overlong(length: npt.ArrayLike, longest: int, cache: int) -> Floats:
    """Computes DAPO's penalty in [-1, 0] for replies whose length is near the limit.

    The penalty is 0 up to `longest - cache`, falls linearly to -1 at `longest`, and stays -1 above.

    Args:
        length: length of replies in tokens, any shape.
        longest: the limit L_max in tokens.
        cache: number of tokens before the limit over which the penalty falls; at least 1.
    """
    over = np.asarray(length, dtype=np.float64) - (longest - cache)
    return np.clip(-over / cache, -1.0, 0.0) + 0.0
