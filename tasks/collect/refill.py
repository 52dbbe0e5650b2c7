"""Replace groups that cannot teach by further groups (dynamic sampling, DAPO, arXiv 2503.14476).

The further groups depend only on the lake's content, so an interrupted collection continues with the same groups.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from curation.curriculum import apportion
from learning.algorithms.method import DataSource, method_of
from storage.catalog import answers
from tasks.collect.plan import choices_of, plan
from tasks.collect.stream_pool import can_teach
from tasks.running.run import Run


@dataclass(frozen=True, slots=True)
class GroupWorth:
    """Reward of one trajectory of a group, with the columns of `storage/queries/group_worth.sql`."""

    group_id: str
    attempt: int
    success: bool | None
    worth: float | None


def refills(run: Run, iteration: int, version: str) -> Iterator[Mapping[str, int]]:
    """Yield the number of further groups of each round, by task. The caller collects them before the next round.

    The rounds end when `train.group.groups` groups can teach, or after `train.group.refill` rounds. Methods that do not
    compare groups have no rounds.
    """
    group = run.config.train.group
    if method_of(run.config.train).source is not DataSource.GROUPS:
        return
    choices = choices_of(run, iteration)
    chosen = {one.task_id: one.policy_trajectories // group.size for one in choices if one.policy_trajectories}
    further: dict[str, int] = {}
    for _ in range(group.refill):
        lacking = group.groups - len(_teaching(run, iteration, version, further))
        if lacking <= 0:
            return
        further = {task: further.get(task, 0) + count for task, count in apportion(chosen, lacking).items()}
        yield further


def _teaching(run: Run, iteration: int, version: str, further: Mapping[str, int]) -> list[str]:
    """Return the planned groups that can teach."""
    group = run.config.train.group
    planned = {one.group_id for one in plan(run, iteration, version, further)}
    rows = answers(run.lake, GroupWorth, "group_worth", iteration=iteration, scored=group.advantage == "pass1")
    found: dict[str, dict[int, float | None]] = defaultdict(dict)
    solved = {row.group_id for row in rows if row.success}
    for row in rows:
        slot = row.attempt % group.size
        if row.group_id in planned and found[row.group_id].get(slot) is None:
            found[row.group_id][slot] = row.worth
    return [name for name, worth in found.items() if can_teach(list(worth.values()), group, name in solved)]
