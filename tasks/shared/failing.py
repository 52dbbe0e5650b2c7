"""What failed of an iteration for what is not the policy's fault, by task, as the lake has it."""

from rollout.failures import Ended, FailedTask, always_failing
from schemas.failure import EnvironmentDown
from storage.lake import Lake


def failing(lake: Lake, iteration: int) -> list[FailedTask]:
    """The tasks of which no trajectory of an iteration worked, further attempts counted too."""
    return always_failing(_ended(lake, iteration))


def require_any(lake: Lake, iteration: int) -> None:
    """Raises EnvironmentDown where an iteration has trajectories and none of them worked."""
    ended = _ended(lake, iteration)
    found = always_failing(ended)
    if ended and sum(one.trajectories for one in found) == len(ended):
        raise EnvironmentDown(
            f"Nothing of iteration {iteration} worked: all {len(ended)} trajectories failed, not for the policy's "
            f"fault. {found[0].text}.",
            "`flywheel doctor` looks at what is needed; the next iteration rolls out anew.",
        )


def _ended(lake: Lake, iteration: int) -> list[Ended]:
    rows = lake.read("trajectories", ["task_id", "failure_boundary", "failure_reason"], {"iteration": iteration})
    return [(row["task_id"], row["failure_boundary"], row["failure_reason"]) for row in rows.to_pylist()]
