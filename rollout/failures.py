"""Count the environment failures of each task.

The end of a rollout (`rollout.runner`), the end of a collection and `flywheel status` use this count.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.failure import is_environment_failure

LONGEST = 200
"""Maximum length of a printed reason, in characters."""
Ended = tuple[str, str | None, str | None]
"""A trajectory's task id, failure boundary and failure reason; the last two are None if it did not fail."""


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A task with environment failures."""

    task: str
    failed: int
    trajectories: int
    """Number of all trajectories of the task."""
    boundary: str
    """Most frequent boundary of the failures."""
    reason: str
    """Most frequent reason of failures at this boundary, in one line."""

    @property
    def always(self) -> bool:
        """Whether every trajectory of the task had an environment failure."""
        return self.failed == self.trajectories

    @property
    def text(self) -> str:
        """Returns a summary in one line."""
        return f"{self.task}: {self.failed} of {self.trajectories} failed in the {self.boundary}: {self.reason}"


def failed_tasks(ended: Iterable[Ended]) -> list[FailedTask]:
    """Return the tasks with environment failures, in descending order of their number."""
    of: Counter[str] = Counter()
    whys: dict[str, Counter[tuple[str, str]]] = {}
    for task, boundary, reason in ended:
        of[task] += 1
        if boundary is not None and is_environment_failure(boundary):
            whys.setdefault(task, Counter())[boundary, short(reason)] += 1
    found = [FailedTask(task, why.total(), of[task], *why.most_common(1)[0][0]) for task, why in whys.items()]
    return sorted(found, key=lambda one: (-one.failed, one.task))


def always_failing(ended: Iterable[Ended]) -> list[FailedTask]:
    """Return the tasks whose trajectories all had environment failures."""
    return [one for one in failed_tasks(ended) if one.always]


def short(reason: str | None) -> str:
    """Shorten a reason to one line of at most `LONGEST` characters."""
    return " ".join((reason or "no reason").split())[:LONGEST].rstrip(".")
