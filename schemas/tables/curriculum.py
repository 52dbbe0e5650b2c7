"""Define the table `curriculum`: weights of tasks in each iteration, with their numbers and reasons."""

from typing import Literal, get_args

from schemas.table import Float64, Int32, Row, Table, Text, between, not_null, one_of, unique

Pool = Literal["unseen", "hopeless", "learnable", "saturated", "uniform", "practice"]


class CurriculumChoice(Row):
    """Weight of one task in one iteration, and the reason."""

    iteration: Int32
    task_id: Text
    weight: Float64
    """Share of the iteration's trajectories, in [0, 1]. The sum over an iteration is 1."""
    explorer_trajectories: Int32
    policy_trajectories: Int32
    relay_trajectories: Int32
    pool: Pool
    successes: Float64
    """Successes of the policy so far. Older successes weigh less."""
    failures: Float64
    reason: Text

    @property
    def trajectories(self) -> dict[str, int]:
        """Counts the trajectories by actor."""
        return {
            "explorer": self.explorer_trajectories,
            "policy": self.policy_trajectories,
            "relay": self.relay_trajectories,
        }


TABLE = Table(
    name="curriculum",
    row=CurriculumChoice,
    key=("iteration", "task_id"),
    partition_by=("iteration",),
    expectations=(
        unique(("iteration", "task_id")),
        between("weight", 0.0, 1.0, because="weights are shares of the iteration"),
        *not_null("reason", because="every weight needs a reason"),
        one_of("pool", get_args(Pool), because="the report supports these pools"),
    ),
)
