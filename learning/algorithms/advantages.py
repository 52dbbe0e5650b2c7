"""Computes advantages of whole trajectories from the rewards of their group: GRPO and Pass@k training.

GRPO (arXiv 2402.03300): A_i = (R_i - mean) / std. The standard deviation is that of the population (over N), so that
pass@1 equals Pass@k with k = 1. Public code (verl) uses the standard deviation of a sample (over N - 1), as `ddof=1`
does.

NaN as a reward marks an environment failure: it enters no mean, and its advantage is 0. If all rewards are equal, all
advantages are 0. A group of one trajectory has the advantage 0 (verl uses its reward). Rewards lie in [-1, 1]; rewards
that differ by less than `SAME`, the rounding of a sum, count as equal.

Pass@k training (arXiv 2508.10751) rewards one success among k; the module also estimates pass@k. Rewards are 0 or 1. N
trajectories, c of them successes, m = N - c failures. With C(a, b) = 0 for a < b:

    mean of the group reward    rho   = 1 - C(m, k) / C(N, k)                                    (11)
    its deviation               sigma = sqrt(rho (1 - rho))                                      (12)
    a success                   A+ = (1 - rho) / sigma                                           (14)
    a failure                   A- = (1 - rho - C(m - 1, k - 1) / C(N - 1, k - 1)) / sigma       (15)

All are 0 if sigma is 0: without success, or with fewer failures than k. They are computed as A+ = sqrt(q / (1 - q)) and
A- = -A+ c / m, where q = 1 - rho is the quotient in (11), because from N = 58 on, rho may round to 1 and sigma to 0.
With k = 1 this is GRPO with the population's deviation. The forms differ in scale, and so in the suitable learning
rate. Bootstrap sums (Eq. 6), so for many groups it approaches groups * k / N times the analytic value. The analytic
strength falls with k. verl's `GRPO_PASSK` is a different algorithm (arXiv 2503.19595).
"""

import math
from collections.abc import Callable, Sequence

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


def pass_at_k(n: int, successes: int, k: int) -> float:
    """Estimates without bias the probability that at least one of k trajectories succeeds: 1 - C(n - c, k) / C(n, k)
    (arXiv 2107.03374).

    Raises:
        ValueError: there are fewer trajectories than k, or more successes than trajectories.
    """
    if not (1 <= k <= n and 0 <= successes <= n):
        raise ValueError(f"pass@{k} cannot be estimated from {successes} successes in {n} trajectories")
    return 1.0 - math.comb(n - successes, k) / math.comb(n, k)


def analytic(rewards: Floats, k: int) -> Floats:
    """Computes the expectation over all C(N, k) groups: A+ for successes, A- for failures, (n,); all 0 if N < k."""
    n, wins = len(rewards), _wins(rewards)
    lost = n - int(wins.sum())
    if n < k or lost < k or lost == n:
        return np.zeros(n)
    missed = math.comb(lost, k) / math.comb(n, k)
    success = math.sqrt(missed / (1.0 - missed))
    return np.where(wins, success, -success * (n - lost) / lost)


def full_sampling(rewards: Floats, k: int) -> Floats:
    """Rewards groups of k consecutive trajectories by their best member; all members get their group's z-score.

    The trajectories after the last whole group get 0.
    """
    groups = len(rewards) // k
    best = _wins(rewards)[: groups * k].reshape(groups, k).max(axis=1, initial=False).astype(np.float64)
    advantages = np.zeros(len(rewards))
    advantages[: groups * k] = np.repeat(centred(best), k)
    return advantages


def bootstrap(rewards: Floats, k: int, groups: int, rng: np.random.Generator) -> Floats:
    """Draws `groups` groups of k distinct trajectories; an advantage is the sum of its groups' z-scores (Eq. 6),
    (n,)."""
    n, wins = len(rewards), _wins(rewards)
    if n < k:
        return np.zeros(n)
    members = np.stack([rng.choice(n, k, replace=False) for _ in range(groups)])
    scores = centred(wins[members].max(axis=1).astype(np.float64))
    advantages = np.zeros(n)
    np.add.at(advantages, members, scores[:, None])
    return advantages


def combined(rewards: Floats, k: int) -> Floats:
    """Computes Eq. 18: Pass@k's advantage with the weight c / N and pass@1's otherwise, which damps only easy tasks."""
    share = float(_wins(rewards).mean()) if len(rewards) else 0.0
    return share * analytic(rewards, k) + (1.0 - share) * centred(rewards)


def exceeding(rewards: Floats, k: int) -> Floats:
    """Computes Eq. 17: the analytic advantage times 4 / (10 ln(c + 1/2)), which gives groups with c = 1 the most
    weight.

    The paper does not state the base of the logarithm; it is taken as natural. The peak does not depend on the base.
    """
    wins = int(_wins(rewards).sum())
    return analytic(rewards, k) * (4.0 / (10.0 * math.log(wins + 0.5))) if wins else np.zeros(len(rewards))


def adaptive(groups: Sequence[Floats], entropies: Sequence[float], k: int) -> list[Floats]:
    """Computes section 4.2.3: the half of the groups with more entropy gets the pass@1 advantage, since it explores
    already.

    Args:
        groups: rewards of each group of one batch.
        entropies: mean entropy of each group's replies, in nats.
        k: for the half with less entropy, which is the larger half if the number of groups is odd.
    """
    order = np.argsort(-np.asarray(entropies, dtype=np.float64), kind="stable")
    exploring = set(order[: len(groups) // 2].tolist())
    return [centred(group) if at in exploring else analytic(group, k) for at, group in enumerate(groups)]


def _wins(rewards: Floats) -> np.ndarray:
    if not np.isin(rewards, (0.0, 1.0)).all():
        raise ValueError("Pass@k is defined for rewards of 0 and 1 only")
    return rewards == 1.0
