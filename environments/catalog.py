"""List the tasks that a config rolls out for data, and those that it only evaluates."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from common.text import some_of
from environments.environment import Environment
from environments.registry import ENVIRONMENTS, environments_of, left_out, verifier_of
from schemas.config import Config
from schemas.failure import FlywheelError, UsageError
from schemas.registry import options_of
from schemas.tables.task import GuiTask, Split

Environments = Sequence[Environment[Any]]
IMPLIED = "miniwob"
"""The environment of a config that names none."""
BRING_THEIR_OWN = ("games", "hybrid", "desktop", "webapp", "pages", "repair", "search")
"""Kinds that have tasks even if a config names none, and that a config does not imply."""


def catalog(config: Config) -> list[GuiTask]:
    """Lists the tasks of `whole_catalog` without those of excluded environments.

    Raises:
        UsageError: in the cases of `whole_catalog`, or if no task is left.
    """
    tasks, out = whole_catalog(config), left_out(config)
    if all(task.environment in out for task in tasks if task.split == "train"):
        raise UsageError(f"Every task of the suite is of an environment that is left out: {next(iter(out.values()))}")
    return [task for task in tasks if task.environment not in out]


def whole_catalog(config: Config) -> list[GuiTask]:
    """Lists the suite's tasks (split `train`), the held-out tasks and the practice tasks, in the config's order.

    Tasks of excluded environments are included, since a held-out task is held out on every machine.

    Raises:
        UsageError: there is no task; no environment or several environments have a task; a task is named twice, or both
            rolled out and held out; a practice task's screens list no elements; a verifier does not exist or cannot
            read the task's sandboxes. The message names the field and the nearest task. Hard tasks and step limits may
            name tasks that a narrowed suite leaves out.
    """
    suite, environments = config.suite, environments_of(config)
    if not suite.tasks:
        raise UsageError("`suite.tasks` names no task.", "Write, for example, 'suite.tasks=[\"click-test\"]'.")
    tasks = _tasks(config, environments, "suite.tasks", suite.tasks, "train")
    held_out = _tasks(config, environments, "suite.held_out", suite.held_out, "held_out")
    practice = _tasks(config, environments, "suite.practice", suite.practice, "practice")
    if both := _ids(tasks) & _ids(held_out):
        raise UsageError(f"`suite.held_out`: {min(both)} is also in suite.tasks.", "A held-out task makes no data.")
    if both := _ids(practice) & _ids(tasks + held_out):
        raise UsageError(f"`suite.practice`: {min(both)} is also evaluated.", "A practice page is never evaluated.")
    blind = {one.name for one in environments if not one.lists_elements}
    if bare := [task.task_id for task in practice if task.environment in blind]:
        hint = "Practice teaches to name elements and to point at them; take the task out."
        raise UsageError(f"`suite.practice`: the screens of {bare[0]} list no elements.", hint)
    for field, names in (("hard", suite.hard), ("max_steps", suite.max_steps)):
        for name in names:
            _id(f"suite.{field}", name, environments)
    return tasks + held_out + practice


def playable(config: Config) -> tuple[list[GuiTask], dict[str, str]]:
    """Lists every task of the config's environments and of the built-in kinds that the config does not name.

    The machine may lack parts that an environment needs (`Environment.probes`).

    Returns:
        The tasks, and the reason for each environment that has no tasks with its current keys.
    """
    tasks, missing = list[GuiTask](), dict[str, str]()
    used = {section.kind for section in config.environments.values()}
    for name in (*config.environments, *(kind for kind in ENVIRONMENTS.names if kind not in used)):
        given = config.environments.get(name)
        kind = ENVIRONMENTS.class_of(given.kind if given else name)
        try:
            section = given or options_of(kind.section, {"kind": name}, f"environments.{name}")
            environment: Environment[Any] = kind(name, section)
            tasks += [environment.task(template, "train") for template in environment.entries]
            if not environment.entries:
                missing[name] = f"it has only tasks of yours, in environments.{name}.tasks."
        except FlywheelError as error:
            missing[name] = error.problem
    return tasks, missing


def tasks_named(config: Config, names: Iterable[str], field: str = "tasks") -> list[GuiTask]:
    """Looks up tasks by template or id, with the config's step limits; raises UsageError for a name that no environment
    has, or that belongs to an excluded optional environment."""
    found, out = _tasks(config, environments_of(config), field, names, "train"), left_out(config)
    for task in found:
        if why := out.get(task.environment):
            raise UsageError(f"`{field}`: {task.task_id} is of an environment that is left out: {why}")
    return found


def name_in(config: Config, task_id: str) -> str:
    """Returns the name of a task in a config: its template, or its id if several environments have this template."""
    template = task_id.rpartition("/")[2]
    return template if sum(template in one.entries for one in environments_of(config)) == 1 else task_id


def _tasks(config: Config, environments: Environments, field: str, names: Iterable[str], split: Split) -> list[GuiTask]:
    limits = {_id("suite.max_steps", name, environments): limit for name, limit in config.suite.max_steps.items()}
    found: dict[str, GuiTask] = {}
    for name in names:
        environment, template = _found(field, name, environments)
        task = environment.task(template, split, limits.get(f"{environment.name}/{template}"))
        if task.task_id in found:
            raise UsageError(f"`{field}` names {name} twice.", "Name every task once.")
        _require_verifier(task, environment)
        found[task.task_id] = task
    return list(found.values())


def _require_verifier(task: GuiTask, environment: Environment[Any]) -> None:
    given = getattr(environment.config, "tasks", None)
    named = isinstance(given, Mapping) and task.template in given
    key = f"environments.{environment.name}.tasks.{task.template}.verifier" if named else ""
    verifier, its = verifier_of(task.verifier, key), environment.sandbox_class
    if verifier is not None and not issubclass(its, verifier.reads):
        raise UsageError(
            f"Task `{task.task_id}`: its verifier {task.verifier} reads {verifier.reads.__name__}, and sandboxes of "
            f"environment `{environment.name}` are {its.__name__}.",
            "Name a verifier of that environment, or the class of its sandboxes (`sandbox_class`).",
        )


def _ids(tasks: Iterable[GuiTask]) -> set[str]:
    return {task.task_id for task in tasks}


def _id(field: str, name: str, environments: Environments) -> str:
    environment, template = _found(field, name, environments)
    return f"{environment.name}/{template}"


def _kind_with(template: str, named: set[str]) -> str:
    """Returns a built-in kind that the config does not name and that has this task without any config."""
    for kind in (one for one in BRING_THEIR_OWN if one not in named):
        made = ENVIRONMENTS.class_of(kind)
        if template in made(kind, made.section.model_validate({})).entries:
            return kind
    return ""


def _found(field: str, name: str, environments: Environments) -> tuple[Environment[Any], str]:
    """Finds the environment and the template of `template` or `environment/template`."""
    asked, slash, template = name.rpartition("/")
    having = [one for one in environments if template in one.entries and (not slash or one.name == asked)]
    if len(having) == 1:
        return having[0], template
    if having:
        names = " or ".join(f"`{one.name}/{name}`" for one in having)
        raise UsageError(f"`{field}`: several environments have a task `{name}`.", f"Write {names}.")
    known = sorted({known for one in environments for known in one.entries})
    if not slash and (kind := _kind_with(template, {one.config.kind for one in environments})):
        hint = (
            f"It is one of kind `{kind}`: add a section `[environments.{kind}]`, or environments.{kind}.optional=true."
        )
        raise UsageError(f"`{field}`: no environment of the config has the task `{name}`.", hint)
    own = next((one for one in environments if slash and one.name == asked), None)
    if own is not None and "tasks" in type(own.config).model_fields:
        hint = f"Define it in [environments.{asked}.tasks.{template}], or name another task of `{asked}`."
        raise UsageError(f"`{field}`: there is no task `{name}`.", hint)
    near = get_close_matches(template, known, n=1)
    there = f"Tasks of {', '.join(one.name for one in environments)}: {some_of(known)}." if known else ""
    hint = f"Did you mean `{near[0]}`?" if near else there
    if own is None and not near and IMPLIED not in {one.config.kind for one in environments}:
        hint += f" The config names other environments, so it has no MiniWoB++; add it: environments.{IMPLIED}.pages=2."
    raise UsageError(f"`{field}`: there is no task `{name}`.", hint)
