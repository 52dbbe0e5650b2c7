"""Computes advantages of Pass@k training (arXiv 2508.10751), which rewards one success among k, and estimates pass@k.

Rewards are 0 or 1. N trajectories, c of them successes, m = N - c failures. With C(a, b) = 0 for a < b:

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
from collections.abc import Sequence

import numpy as np

from learning.algorithms.advantages import Floats, centred


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
