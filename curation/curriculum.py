"""Turn curriculum weights into trajectories: the number of each kind for each task, and their seeds.

Kinds are trajectories of only the explorer, trajectories of only the policy, and relays, which the policy begins and
the explorer finishes. Counts are exact: they add up to the budget for any weights.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from schemas.tables.trajectory import SPLIT_STARTS


@dataclass(frozen=True, slots=True)
class Mix:
    """Number of one task's trajectories by kind."""

    explorer: int
    policy: int
    relay: int


def apportion(weights: Mapping[str, float], total: int) -> dict[str, int]:
    """Return whole numbers that add up to `total`, as near to the weights as possible (largest remainder).

    Raises:
        ValueError: there are no weights, or their sum is not above 0.
    """
    mass = sum(weights.values())
    if mass <= 0:
        raise ValueError("curriculum weights add up to nothing")
    exact = {name: total * weight / mass for name, weight in weights.items()}
    counts = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (counts[name] - exact[name], name))
    for name in by_remainder[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


def mix(count: int, pool: str, policy_share: float, relay_share: float, hopeless_share: float, lead: float) -> Mix:
    """Divide one task's trajectories among the kinds.

    Policy and relay get their shares times `lead`, the policy's success divided by the explorer's, but at least the
    hopeless share and at most all of them. If the policy is hopeless or unseen, its trajectories would only repeat
    failures: they get the hopeless share. The explorer gets the rest.
    """
    damp = {"hopeless": hopeless_share, "unseen": hopeless_share, "uniform": 1.0}.get(
        pool, max(hopeless_share, min(1.0, lead))
    )
    parts = {"policy": policy_share * damp, "relay": relay_share * damp}
    parts["explorer"] = max(0.0, 1.0 - sum(parts.values()))
    counts = apportion(parts, count)
    return Mix(counts["explorer"], counts["policy"], counts["relay"])


def seeds(seed: int, iteration: int, task_id: str, kind: str, count: int) -> list[int]:
    """Return training seeds for these trajectories: distinct, below validation seeds, and equal for equal arguments.

    Args:
        seed: `seed` of the config, so that two lakes with one config use the same seeds.
        iteration: iteration of the trajectories.
        task_id: the task.
        kind: kind of actor: `explorer`, `policy`, `relay` or `group`.
        count: number of seeds.
    """
    found: list[int] = []
    taken: set[int] = set()
    number = 0
    while len(found) < count:
        name = f"{seed}|{iteration}|{task_id}|{kind}|{number}"
        drawn = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % SPLIT_STARTS["validation"]
        if drawn not in taken:
            taken.add(drawn)
            found.append(drawn)
        number += 1
    return found
