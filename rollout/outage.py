"""When a rollout stops by itself: nothing works any more in one of its environments.

What is blamed on the environment, the server or the judge is kept and tried again, and says nothing about the policy.
Where nothing works, all attempts would be spent on nothing. A few bad tasks do not stop the others: whatever works in
the environment shows that it is up, and how a task fails is said at the end (`rollout.failures`).
"""

from collections import Counter

from rollout.failures import Ended, failed_tasks, short
from schemas.failure import EnvironmentDown, is_environment_failure
from schemas.tables.trajectory import Trajectory

LEAST = 20
"""So many have to fail one after the other; or twice as many as are under way at once, if that is more: one host that
dies takes all its trajectories with it."""
TASKS = 5
"""Of so many tasks, or of all that are rolled out if these are fewer: one task's trajectories may follow each other."""
NAMED = 5
"""Tasks that the message names."""
_HINTS = {
    "server": "See that `policy.server.url` answers: `flywheel doctor` asks it.",
    "judge": "See that the judge answers: `flywheel doctor` asks it.",
}


class Outage:
    """Of the trajectories of one environment, each at its first attempt in a rollout: whether none works any more.

    Args:
        environment: its name.
        tasks: how many of its tasks are rolled out.
        at_once: how many trajectories at the same time.
    """

    def __init__(self, environment: str, tasks: int, at_once: int) -> None:
        self._environment, self._tasks = environment, min(TASKS, tasks)
        self._least = max(LEAST, 2 * at_once)
        self._since: list[Ended] = []
        """Those that failed since one last worked."""

    def note(self, ended: Trajectory) -> None:
        """Takes note of one that ended.

        Raises:
            EnvironmentDown: this one and all before it failed for what is not the policy's fault; names the tasks, and
                quotes the commonest reason.
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
            f"({boundary}), so this stage stops; most said: {reason}. By task: {self._counts()}.",
            f"{_HINTS.get(boundary, '`flywheel doctor` looks at what is needed.')} The same command then goes on.",
        )

    def _counts(self) -> str:
        found = failed_tasks(self._since)
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        return ", ".join(f"{one.task} {one.failed}" for one in found[:NAMED]) + more
