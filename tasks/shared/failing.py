"""Find the environment failures of an iteration, by task."""

from rollout.failures import Ended, FailedTask, always_failing
from schemas.failure import EnvironmentDown
from storage.lake import Lake


def failing(lake: Lake, iteration: int) -> list[FailedTask]:
    """Return the tasks whose trajectories in an iteration all had environment failures, retries included."""
    return always_failing(_ended(lake, iteration))


def require_any(lake: Lake, iteration: int) -> None:
    """Raise EnvironmentDown if an iteration has trajectories and all of them had environment failures."""
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
