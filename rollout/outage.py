"""When a rollout stops by itself: the environment, the server or the judge fails most of what is begun.

What is blamed on the environment is kept and tried again, and says nothing about the policy. Where nearly all fails
so, all attempts would be spent on nothing, and whoever trains on what is left would learn from almost no data.
"""

from collections import deque

from schemas.failure import EnvironmentDown, is_environment_failure
from schemas.tables.trajectory import Trajectory

LEAST, MOST = 20, 40
"""So many are waited for before anything is reported, and so many of the last count; or twice and four times as many as
are under way at once, if that is more: one host that dies takes all its trajectories with it."""
_HINTS = {
    "server": "See that `policy.server.url` answers: `flywheel doctor` asks it.",
    "judge": "See that the judge answers: `flywheel doctor` asks it.",
}


class Outage:
    """Of the trajectories of one rollout, each at its first attempt: whether most of the last ones failed.

    Args:
        at_once: how many are rolled out at the same time.
    """

    def __init__(self, at_once: int) -> None:
        self._least = max(LEAST, 2 * at_once)
        self._last: deque[bool] = deque(maxlen=max(MOST, 4 * at_once))

    def note(self, ended: Trajectory) -> None:
        """Takes note of one that ended.

        Raises:
            EnvironmentDown: most of the last ones failed for what is not the policy's fault; quotes this one's reason.
        """
        failed = is_environment_failure(ended.failure_boundary)
        self._last.append(failed)
        if failed and len(self._last) >= self._least and 2 * sum(self._last) > len(self._last):
            boundary = str(ended.failure_boundary)
            problem = f"{sum(self._last)} of the last {len(self._last)} trajectories failed, not for the policy's fault"
            raise EnvironmentDown(
                f"{problem} ({boundary}), so this stage stops; the last one: {_short(ended.failure_reason)}.",
                f"{_HINTS.get(boundary, '`flywheel doctor` looks at what is needed.')} The same command then goes on.",
            )


def _short(reason: str | None) -> str:
    return " ".join((reason or "no reason").split())[:300].rstrip(".")
