"""Stop a rollout when nothing works any more in one of its environments.

Failures blamed on the environment, the server or the judge are kept and retried; they do not count against the policy.
Where nothing works, the rollout would use up all attempts. A few bad tasks do not stop the others: one success shows
that the environment is up. The end of the rollout reports how each task fails (`rollout.failures`).
"""

from collections import Counter

from rollout.failures import Ended, failed_tasks, short
from schemas.failure import EnvironmentDown, is_environment_failure
from schemas.tables.trajectory import Trajectory

LEAST = 20
"""Minimum number of consecutive failures, or twice the number under way if that is more: one host that dies takes
all its trajectories with it."""
TASKS = 5
"""Minimum number of distinct tasks among them (or all, if fewer): one task's trajectories may follow each other."""
NAMED = 5
"""Maximum number of tasks that the message names."""
_HINTS = {
    "server": "See that `policy.server.url` answers: `flywheel doctor` asks it.",
    "judge": "See that the judge answers: `flywheel doctor` asks it.",
}


class Outage:
    """Detects that no trajectory of an environment works any more, from each one's first attempt in a rollout.

    Args:
        environment: its name.
        tasks: number of its tasks in the rollout.
        at_once: number of trajectories at the same time.
    """

    def __init__(self, environment: str, tasks: int, at_once: int) -> None:
        self._environment, self._tasks = environment, min(TASKS, tasks)
        self._least = max(LEAST, 2 * at_once)
        self._since: list[Ended] = []
        """Failures since the last success."""

    def note(self, ended: Trajectory) -> None:
        """Record a trajectory that ended.

        Raises:
            EnvironmentDown: this one and all since the last success failed for reasons other than the policy; the
                message
                has the tasks and the most frequent reason.
        """
        if not is_environment_failure(ended.failure_boundary):
            self._since.clear()
            return
        self._since.append((ended.task_id, ended.failure_boundary, ended.failure_reason))
        if len(self._since) < self._least or len({task for task, _, _ in self._since}) < self._tasks:
            return
        (boundary, reason), _ = Counter((str(where), short(why)) for _, where, why in self._since).most_common(1)[0]
        raise EnvironmentDown(
            f"The last {len(self._since)} trajectories of `{self._environment}` all failed, not for the policy's fault "
            f"({boundary}), so this stage stops; most frequent reason: {reason}. By task: {self._counts()}.",
            f"{_HINTS.get(boundary, '`flywheel doctor` checks the requirements.')} The same command then goes on.",
        )

    def _counts(self) -> str:
        found = failed_tasks(self._since)
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        return ", ".join(f"{one.task} {one.failed}" for one in found[:NAMED]) + more
