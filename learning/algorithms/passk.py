"""Pass@k training (arXiv 2508.10751): advantages that reward a group for one success among k, and the pass@k estimate.

Rewards are 0 or 1. N trajectories, c of them successes, m = N - c failures. With C(a, b) = 0 for a < b:

    mean of the group reward    rho   = 1 - C(m, k) / C(N, k)                                    (11)
    its deviation               sigma = sqrt(rho (1 - rho))                                      (12)
    a success                   A+ = (1 - rho) / sigma                                           (14)
    a failure                   A- = (1 - rho - C(m - 1, k - 1) / C(N - 1, k - 1)) / sigma       (15)

all 0 where sigma is 0: no success, or fewer failures than k. They are computed as A+ = sqrt(q / (1 - q)) and
A- = -A+ c / m, with q = 1 - rho the quotient in (11): from N = 58 on, rho may round to 1 and sigma to 0. With k = 1
this is GRPO with the population's deviation. The forms differ in scale, hence in the learning rate they want:
bootstrap sums (Eq. 6), so for many groups it nears groups * k / N times the analytic value, and the analytic strength
falls with k. It is not verl's `GRPO_PASSK`, which is another algorithm (arXiv 2503.19595).
"""

import math
from collections.abc import Sequence

import numpy as np

from learning.algorithms.advantages import Floats, centred


def pass_at_k(n: int, successes: int, k: int) -> float:
    """Estimates without bias the chance that one of k succeeds: 1 - C(n - c, k) / C(n, k) (arXiv 2107.03374).

    Raises:
        ValueError: fewer trajectories than k, or more successes than trajectories.
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
    """Rewards groups of k trajectories, in their order, by their best; members get their group's z-score.

    The trajectories left over after floor(N / k) groups get 0.
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
    """Computes Eq. 18: hard tasks at pass@1's strength, easy ones damped as by Pass@k; weight c / N on Pass@k."""
    share = float(_wins(rewards).mean()) if len(rewards) else 0.0
    return share * analytic(rewards, k) + (1.0 - share) * centred(rewards)


def exceeding(rewards: Floats, k: int) -> Floats:
    """Computes Eq. 17: the analytic advantage times 4 / (10 ln(c + 1/2)), which moves the most effort to c = 1.

    The paper does not state the base of the logarithm; it is taken as natural. Any base gives the same peak.
    """
    wins = int(_wins(rewards).sum())
    return analytic(rewards, k) * (4.0 / (10.0 * math.log(wins + 0.5))) if wins else np.zeros(len(rewards))


def adaptive(groups: Sequence[Floats], entropies: Sequence[float], k: int) -> list[Floats]:
    """Computes section 4.2.3: the half of the groups with more entropy takes the pass@1 advantage, as it explores
    already.

    Args:
        groups: rewards of each group of one batch.
        entropies: mean entropy of each group's replies, in nats.
        k: for the other half; with an odd number of groups that is the larger one.
    """
    order = np.argsort(-np.asarray(entropies, dtype=np.float64), kind="stable")
    exploring = set(order[: len(groups) // 2].tolist())
    return [centred(group) if at in exploring else analytic(group, k) for at, group in enumerate(groups)]


def _wins(rewards: Floats) -> np.ndarray:
    if not np.isin(rewards, (0.0, 1.0)).all():
        raise ValueError("Pass@k is defined for rewards of 0 and 1 only")
    return rewards == 1.0
