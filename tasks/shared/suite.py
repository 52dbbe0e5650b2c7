"""List the tasks of a run: tasks of the config's catalog, and accepted made tasks of the lake."""

from curation.synthesis.leaks import ancestors
from curation.synthesis.making import makers_of
from environments.catalog import catalog, whole_catalog
from environments.registry import usable
from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.proposal import Proposal
from schemas.tables.task import GuiTask
from storage.lake import Lake


def tasks_of(config: Config, lake: Lake | None) -> list[GuiTask]:
    """Return the tasks of the catalog, followed by the made tasks that are rolled out, if there is a lake."""
    return [*catalog(config), *made_tasks(config, lake)]


def made_tasks(config: Config, lake: Lake | None) -> list[GuiTask]:
    """Return the accepted made tasks that can be rolled out, in the order of their ids; empty without a lake.

    The config has their environments, with unchanged properties. They are not retired, and do not descend from a task
    that is held out.
    """
    accepted = lake.rows(Proposal, {"status": "accepted"}) if lake else []
    rows = [one for one in accepted if one.world == worlds(config).get(one.environment)]
    if not lake or not rows:
        return []
    known = {one.task_id: one for one in lake.rows(GuiTask, {"task_id": [row.task_id for row in rows]})}
    held = {one.task_id for one in whole_catalog(config) if one.split == "held_out"}
    parents = parents_of(lake)
    return [
        known[row.task_id]
        for row in sorted(rows, key=lambda one: one.task_id)
        if row.task_id in known and not ancestors([row.task_id], parents) & held
    ]


def made_named(config: Config, lake: Lake | None) -> dict[str, GuiTask]:
    """Return the made tasks by id and by template; empty without a lake."""
    return {name: one for one in made_tasks(config, lake) for name in (one.task_id, one.template)}


def parents_of(lake: Lake) -> dict[str, list[str]]:
    """Return the parents of each made task."""
    rows = lake.read("proposals", ["task_id", "parents"]).to_pylist()
    return {row["task_id"]: row["parents"] for row in rows}


def worlds(config: Config) -> dict[str, str]:
    """Return a key of the world of each environment in which tasks can be made."""
    return {one.name: one.lineage or "" for one in usable(config) if one.world is not None}


def require_makers(config: Config, asks: bool = True) -> None:
    """Check that tasks can be made.

    Args:
        config: the resolved config.
        asks: also contact the makers' servers.

    Raises:
        UsageError: no environment supports made tasks.
        FlywheelError: a maker's requirement is missing.
    """
    if all(one.world is None for one in usable(config)):
        names = ", ".join(config.environments)
        hint = "Add one, for example [environments.site] to the config, or environments.site.pages=4."
        raise UsageError(f"`environments`: of {names} no task can be made.", hint)
    makers, reward = makers_of(config.synthesis)
    for one in (*makers, reward) if asks else ():
        one.require()
