"""A proposal: a task made of others, the evidence about it, and whether it is a task now."""

from typing import Literal

from schemas.table import Instant, Int32, Row, Table, Text, TextList, between, not_null, one_of, unique

Status = Literal["accepted", "rejected", "retired"]


class Proposal(Row):
    """A proposed task with its evidence; an accepted one has a row in `tasks`."""

    proposal_id: Text
    """Id from its environment, its words and its initial state."""
    iteration: Int32
    """Iteration that it was made for, with earlier data."""
    task_id: Text
    maker: Text
    maker_version: Text
    reward_maker: Text
    """Author of the checks, with its version; it saw the words alone."""
    environment: Text
    world: Text
    """Properties of the environment that it was made of, such as the site's seed and size; in another one it is no
    task."""
    instruction: Text
    parents: TextList
    """Ids of the tasks it was made from, and of the environment's own ones that its reward asks for."""
    initial: Text
    """JSON of a state, as `golden` and each of `near_misses`."""
    golden: Text
    near_misses: Text
    goals: Text
    """JSON of its goals, as its maker knows them; other tasks are made from these."""
    checks: Text
    """JSON of the reward: fields of the state and their required values; the reward maker's, then our own: fields that
    the task does not ask for stay as they were."""
    scores: Text
    """JSON: the reward of the golden and the initial state, of each near miss that its maker named, and of those that
    we derive: `left_out`, the golden state without one of its changes, and `side_effects`, with one more."""
    solver: Text | None
    """Version of the policy that tried it; null where it was not tried."""
    tries: Int32
    solved: Int32
    status: Status
    """`accepted`, `rejected`, or `retired`: removed from the tasks by a user."""
    reason: Text
    """Why it was turned away, in a word or two that can be counted; empty for an accepted one."""
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
        one_of("status", ("accepted", "rejected", "retired"), because="a proposal is a task or it is not"),
        between("tries", 0, None, because="it is tried or it is not"),
    ),
)
