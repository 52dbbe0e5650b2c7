"""A proposal: a task that somebody made of others, what was found out about it, and whether it is a task now."""

from typing import Literal

from schemas.table import Instant, Int32, Row, Table, Text, TextList, between, not_null, one_of, unique

Status = Literal["accepted", "rejected", "retired"]


class Proposal(Row):
    """A proposed task with its evidence; an accepted one has a row in `tasks`."""

    proposal_id: Text
    """Of its environment, its words and its initial state."""
    iteration: Int32
    """The one that it was made for, from what was known before."""
    task_id: Text
    maker: Text
    maker_version: Text
    reward_maker: Text
    """Who wrote the checks, with its version; it saw the words alone."""
    environment: Text
    world: Text
    """What was there to make it of, such as the site's seed and size; in another one it is no task."""
    instruction: Text
    parents: TextList
    """Ids of the tasks it was made from, and of the environment's own ones that its reward asks for."""
    initial: Text
    """JSON of a state, as `golden` and each of `near_misses`."""
    golden: Text
    near_misses: Text
    goals: Text
    """JSON of what it asks for, as its maker knows it; others are made from these."""
    checks: Text
    """JSON of the reward: fields of the state and what they must be; the reward maker's, then the house's: fields that
    the task does not ask for stay as they were."""
    scores: Text
    """JSON: the reward of the golden and the initial state, of each near miss that its maker named, and of those that
    the house derives: `left_out`, the golden state without one of its changes, and `side_effects`, with one more."""
    solver: Text | None
    """The version that tried it; null where it was not tried."""
    tries: Int32
    solved: Int32
    status: Status
    """`retired`: taken out of the tasks by somebody."""
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
        *not_null("task_id", "maker", "reason", because="what was turned away is kept with its reason"),
        one_of("status", ("accepted", "rejected", "retired"), because="a proposal is a task or it is not"),
        between("tries", 0, None, because="it is tried or it is not"),
    ),
)
