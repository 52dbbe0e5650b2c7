"""Which tasks failed for what is not the policy's fault: how many trajectories, where, and the commonest reason.

One count behind the refusal to go on (`rollout.outage`), the end of a collection, and `flywheel status`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.failure import is_environment_failure

LONGEST = 200
"""Characters of a reason that are shown."""
Ended = tuple[str, str | None, str | None]
"""Of a trajectory: its task's id, the boundary at which it failed, and why; None for both where it did not."""


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A task of which some trajectories failed so."""

    task: str
    failed: int
    trajectories: int
    """All of them."""
    boundary: str
    """Where most of those that failed did."""
    reason: str
    """What most of these said, in one line."""

    @property
    def always(self) -> bool:
        """Whether none worked."""
        return self.failed == self.trajectories

    @property
    def text(self) -> str:
        """One line for people."""
        return f"{self.task}: {self.failed} of {self.trajectories} failed in the {self.boundary}: {self.reason}"


def failed_tasks(ended: Iterable[Ended]) -> list[FailedTask]:
    """The tasks of which a trajectory failed for what is not the policy's fault, those with most of them first."""
    of: Counter[str] = Counter()
    whys: dict[str, Counter[tuple[str, str]]] = {}
    for task, boundary, reason in ended:
        of[task] += 1
        if boundary is not None and is_environment_failure(boundary):
            whys.setdefault(task, Counter())[boundary, short(reason)] += 1
    found = [FailedTask(task, why.total(), of[task], *why.most_common(1)[0][0]) for task, why in whys.items()]
    return sorted(found, key=lambda one: (-one.failed, one.task))


def always_failing(ended: Iterable[Ended]) -> list[FailedTask]:
    """Those tasks of which no trajectory worked."""
    return [one for one in failed_tasks(ended) if one.always]


def short(reason: str | None) -> str:
    """A reason in one line."""
    return " ".join((reason or "no reason").split())[:LONGEST].rstrip(".")
