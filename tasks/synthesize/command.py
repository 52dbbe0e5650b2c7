"""Define the commands of `flywheel tasks`: make tasks outside of an iteration, list tasks, and retire a task."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from environments.catalog import catalog
from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.proposal import Proposal
from schemas.tables.task import GuiTask
from storage.lake import Lake
from tasks.running.boundary import boundary
from tasks.running.iterations import next_iteration
from tasks.running.run import run_of
from tasks.shared.suite import made_tasks
from tasks.synthesize.synthesize import Made, synthesize


@boundary("synthesize")
def synthesize_now(config: Config, iterations: tuple[int, int] | None) -> tuple[int, Made]:
    """Make tasks for the next iteration, and return its number.

    A repeated call makes more tasks only if `synthesis.proposals` was raised.

    Args:
        config: the resolved config.
        iterations: iterations whose failures count: the first and the iteration after the last; all if not given.
    """
    run = run_of(config)
    following = next_iteration(run.lake)
    return following, synthesize(run, following, iterations)


@dataclass(frozen=True, slots=True)
class Listed:
    """A task and its status."""

    task: GuiTask
    status: Literal["catalog", "made", "retired", "unused"]
    """Status of the task. `unused`: accepted, but the config does not roll out its environment, site or parent."""
    proposal: Proposal | None = None
    """Accepted proposal of a made task."""


def listed(config: Config, lake: Lake | None) -> list[Listed]:
    """Return the catalog's tasks and every accepted proposal."""
    rows = [Listed(one, "catalog") for one in catalog(config)]
    if lake is None:
        return rows
    used = {one.task_id for one in made_tasks(config, lake)}
    made = {one.task_id: one for one in lake.rows(Proposal, {"status": ["accepted", "retired"]})}
    known = {one.task_id: one for one in lake.rows(GuiTask, {"task_id": sorted(made)})} if made else {}
    for name, one in sorted(made.items()):
        status = "retired" if one.status == "retired" else "made" if name in used else "unused"
        if name in known:
            rows.append(Listed(known[name], status, one))
    return rows


def retire(lake: Lake, name: str, why: str) -> str:
    """Retire a made task, and return its id. The task is no longer rolled out, and is not made again.

    Raises:
        UsageError: no made task has this name.
    """
    rows = {one.task_id: one for one in lake.rows(Proposal, {"status": ["accepted", "retired"]})}
    named = [one for one in rows if name in (one, one.rpartition("/")[2])]
    if len(named) != 1:
        near = get_close_matches(name, list(rows), n=1)
        hint = f"Did you mean `{near[0]}`?" if near else "`flywheel tasks list` shows those that there are."
        raise UsageError(f"No made task of {lake.uri} is called `{name}`.", hint)
    row = rows[named[0]]
    lake.upsert("proposals", [row.model_copy(update={"status": "retired", "detail": why})])
    return row.task_id
