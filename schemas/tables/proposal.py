"""Define the table `proposals`: proposed tasks, with the evidence about them and the decision."""

from typing import Literal, get_args

from schemas.table import Instant, Int32, Row, Table, Text, TextList, between, not_null, one_of, unique

Status = Literal["accepted", "rejected", "retired"]


class Proposal(Row):
    """A proposed task with its evidence. An accepted proposal has a row in `tasks`."""

    proposal_id: Text
    """Id, derived from the environment, the instruction and the initial state."""
    iteration: Int32
    """Iteration that the task was made for."""
    task_id: Text
    maker: Text
    maker_version: Text
    reward_maker: Text
    """Author of the checks, with its version. The author reads only the instruction."""
    environment: Text
    world: Text
    """Properties of the environment that the task was made for, such as the seed and size of its site. The task does
    not fit an environment with other properties."""
    instruction: Text
    parents: TextList
    """Ids of the tasks that the proposal was made from, and of the environment's tasks that its reward asks for."""
    initial: Text
    """JSON of the initial state. `golden` and `near_misses` also hold states."""
    golden: Text
    near_misses: Text
    goals: Text
    """JSON of the goals in the maker's form. Makers combine them into other tasks."""
    checks: Text
    """JSON of the reward: fields of the state and their required values. The reward author's checks come first. The
    built-in checks follow: fields that the task does not ask for must not change."""
    scores: Text
    """JSON of the rewards of states: the golden state, the initial state, the maker's near misses, and derived near
    misses. Derived near misses are `left_out` (the golden state without one of its changes) and `side_effects` (the
    golden state with a further change)."""
    solver: Text | None
    """Version of the policy that tried the task; null if the task was not tried."""
    tries: Int32
    solved: Int32
    status: Status
    """`accepted`, `rejected`, or `retired` (removed from the tasks by a user)."""
    reason: Text
    """Reason for the rejection, in a word or two; empty for an accepted task."""
    detail: Text
    created_at: Instant


TABLE = Table(
    name="proposals",
    row=Proposal,
    key=("proposal_id",),
    partition_by=("iteration",),
    expectations=(
        unique(("proposal_id",)),
        *not_null("task_id", "maker", "reason", because="a rejected proposal is kept with its reason"),
        one_of("status", get_args(Status), because="a proposal has one of these states"),
        between("tries", 0, None, because="a number of tries is not negative"),
    ),
)
