"""Tasks of web applications as data: a file for each application, with the state that its tasks start from.

A task says in words what is to be done; what changes that comes to, and what may change on the way; how a hand would do
it; and, for whoever tests it, the changes that do it (`golden`) and some that nearly do (`near`). What a seed draws
stands in braces: `{mail.subject}`; a text that is nothing but one keeps its kind. A brace that stands for nothing is
refused, `{{` and `}}` are the signs. In a `reward`, which is code, braces of other names are its own.
"""

import random
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field, JsonValue, StringConstraints, ValidationError

from environments.webapp.changes import Edit, Want, changes, edited, score
from environments.webapp.script import ScriptMove
from schemas.config.section import Count, Section
from schemas.failure import UsageError
from schemas.placeholder import NotFilled, blank, filled, filled_code
from schemas.problem import named_problem
from schemas.tables.task import TaskEntry
from schemas.world import State

OURS = Path(__file__).with_name("tasks")
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]


class WebTask(Section):
    """One task of an application; `docs/webapps.md` has one of them, field by field."""

    instruction: str
    difficulty: Literal["easy", "medium", "hard"] = "easy"
    max_steps: Count = 12
    deterministic: bool = True
    draw: dict[str, tuple[JsonValue, ...]] = {}  # noqa: RUF012  (pydantic copies it)
    """What a seed draws one of, by name."""
    edits: tuple[Edit, ...] = ()
    """What is otherwise than in the file's state at first."""
    wants: tuple[Want, ...] = ()
    allows: tuple[str, ...] = ()
    """Paths that may change as well."""
    reward: str = ""
    """In place of `wants`: a JavaScript expression of the page that is a number or true once the task is over, and null
    or false before."""
    script: tuple[ScriptMove, ...] = ()
    golden: tuple[Edit, ...] = ()
    near: tuple[tuple[Edit, ...], ...] = ()


class TaskFile(Section):
    """The tasks of one application."""

    application: Name
    page: str = "/"
    """Where it opens, without `?sid=`."""
    watches: tuple[str, ...] = ()
    """Fields of the state in which nothing but what a task wants and allows may change."""
    allows: tuple[str, ...] = ()
    state: dict[str, JsonValue] = {}  # noqa: RUF012
    items: dict[str, dict[str, JsonValue]] = {}  # noqa: RUF012
    """What all items of a field of the state have, unless they say otherwise."""
    draw: dict[str, tuple[JsonValue, ...]] = {}  # noqa: RUF012
    tasks: Annotated[dict[Name, WebTask], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class WebInstance:
    """A task with what one seed draws."""

    task: WebTask
    instruction: str
    page: str
    initial: State
    watches: tuple[str, ...]
    wants: tuple[Want, ...]
    allows: tuple[str, ...]
    script: tuple[ScriptMove, ...]

    def reward(self, initial: State, current: State) -> float:
        """1 if what is between two states is what is asked for, else 0."""
        return score(changes(initial, current, self.watches), self.wants, self.allows)

    def golden(self, drawn: State) -> State:
        """The state `drawn` after what is asked for."""
        return edited(drawn, self.task.golden)

    def near(self, drawn: State) -> list[State]:
        """States in which it was nearly done, or something else was."""
        return [edited(drawn, edits) for edits in self.task.near]


def read_tasks(path: Path, key: str = "") -> TaskFile:
    """The tasks of a file; raises UsageError, which names the file and the place in it.

    Args:
        path: where it is.
        key: the config key that names it, for the error.
    """
    try:
        return _read(path, path.stat().st_mtime_ns if path.is_file() else 0)
    except OSError as error:
        named = f"`{key}`: " if key else ""
        raise UsageError(f"{named}{path} cannot be read: {error.strerror}.", "Correct the path.") from error


def entry_of(file: TaskFile, name: str) -> TaskEntry:
    """What the catalog says of a task."""
    task = file.tasks[name]
    tags = ("webapp", file.application, task.difficulty)
    words = blank(task.instruction)
    return TaskEntry(instruction=words, tags=tags, max_steps=task.max_steps, deterministic=task.deterministic)


def instance(file: TaskFile, name: str, seed: int) -> WebInstance:
    """A task with a seed; the same seed draws the same."""
    chance = random.Random(f"{file.application} {name} {seed}")
    return _instance(file, name, {key: chance.choice(values) for key, values in sorted(_draws(file, name).items())})


def _draws(file: TaskFile, name: str) -> Mapping[str, tuple[JsonValue, ...]]:
    return {**file.draw, **file.tasks[name].draw}


def _check(file: TaskFile, name: str) -> None:
    """Fills a task with every value that a seed may draw; raises UsageError where a brace stands for nothing."""
    draws = _draws(file, name)
    if empty := [key for key, values in draws.items() if not values]:
        raise UsageError(f"tasks.{name}: `draw.{empty[0]}` has no values.", "Write at least one.")
    for number in range(max(map(len, draws.values()), default=1)):
        _instance(file, name, {key: values[number % len(values)] for key, values in draws.items()})


def _instance(file: TaskFile, name: str, drawn: Mapping[str, Any]) -> WebInstance:
    given = file.tasks[name]
    at = f"tasks.{name}"
    fields = _filled(given.model_dump(exclude_unset=True, exclude={"draw", "reward"}), drawn, at)
    task = WebTask.model_validate({**fields, "reward": _code(given.reward, drawn, at)})
    initial = edited(cast(State, _filled(_whole(file), drawn, "state")), task.edits)
    return WebInstance(
        task, task.instruction, file.page, initial, file.watches, task.wants, (*file.allows, *task.allows), task.script
    )


@cache
def _read(path: Path, changed_at: int) -> TaskFile:
    """Kept while the file does not change."""
    try:
        file = TaskFile.model_validate(tomllib.loads(path.read_text("utf-8-sig")))
        for name in file.tasks:
            if file.tasks[name].reward == "" and not file.tasks[name].wants:
                raise UsageError(f"{path}: task `{name}` has neither wants nor reward.", "Say when it is done.")
            _check(file, name)
    except UsageError as error:
        raise UsageError(
            error.problem if str(path) in error.problem else f"{path}: {error.problem}", error.hint
        ) from error
    except ValidationError as error:
        raise UsageError(f"{path}: {named_problem(error)}.", "docs/webapps.md has an example.") from error
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise UsageError(f"{path}: {error}.", "docs/webapps.md has an example.") from error
    return file


def _whole(file: TaskFile) -> State:
    """The state with what all items of a field have."""

    def whole(field: str, item: Any) -> Any:
        return {**file.items.get(field, {}), **cast(State, item)} if isinstance(item, dict) else item

    state: State = dict(file.state)
    for field in file.items:
        held: Any = state[field]
        if isinstance(held, dict):
            state[field] = {name: whole(field, one) for name, one in cast(State, held).items()}
        else:
            state[field] = [whole(field, one) for one in held]
    return state


def _filled(value: Any, drawn: Mapping[str, Any], at: str = "") -> Any:
    """JSON in which names in braces are what was drawn; raises UsageError that names the place of another brace."""
    if isinstance(value, dict):
        return {
            _text(name, drawn, at): _filled(one, drawn, f"{at}.{name}" if at else name)
            for name, one in cast(dict[str, Any], value).items()
        }
    if isinstance(value, list | tuple):
        return [_filled(one, drawn, f"{at}.{number}") for number, one in enumerate(cast(list[Any], value))]
    return _text(value, drawn, at) if isinstance(value, str) else value


def _code(code: str, drawn: Mapping[str, Any], at: str) -> str:
    try:
        return filled_code(code, drawn)
    except NotFilled as error:
        raise UsageError(f"{at}.reward: {error}.", "docs/webapps.md has an example.") from error


def _text(text: str, drawn: Mapping[str, Any], at: str) -> Any:
    try:
        return filled(text, drawn)
    except NotFilled as error:
        raise UsageError(f"{at or text}: {error}.", "docs/webapps.md has an example.") from error
