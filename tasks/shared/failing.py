"""Find an iteration's failures that are not the policy's fault, by task, from the lake."""

from rollout.failures import Ended, FailedTask, always_failing
from schemas.failure import EnvironmentDown
from storage.lake import Lake


def failing(lake: Lake, iteration: int) -> list[FailedTask]:
    """Return the tasks of which no trajectory of an iteration worked, including further attempts."""
    return always_failing(_ended(lake, iteration))


def require_any(lake: Lake, iteration: int) -> None:
    """Raise EnvironmentDown where an iteration has trajectories and none of them worked."""
    ended = _ended(lake, iteration)
    found = always_failing(ended)
    if ended and sum(one.trajectories for one in found) == len(ended):
        raise EnvironmentDown(
            f"Nothing of iteration {iteration} worked: all {len(ended)} trajectories failed, not for the policy's "
            f"fault. {found[0].text}.",
            "`flywheel doctor` checks the requirements; the next iteration rolls out anew.",
        )


def _ended(lake: Lake, iteration: int) -> list[Ended]:
    rows = lake.read("trajectories", ["task_id", "failure_boundary", "failure_reason"], {"iteration": iteration})
    return [(row["task_id"], row["failure_boundary"], row["failure_reason"]) for row in rows.to_pylist()]
