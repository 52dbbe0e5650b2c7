"""Define tasks of web applications as data: a file for each application, with the initial state of its tasks.

A task has an instruction, wanted and allowed changes, and a script of moves. For tests, it also has edits that complete
it (`golden`) and edits that nearly do (`near`). A seed draws the value of a name in braces, such as `{mail.subject}`; a
text of only one such name keeps the type of its value. An unknown name is refused; `{{` and `}}` are literal braces. In
a `reward`, which is code, braces with other names are kept.

The moves of a task's script name elements; the page's element list turns them into actions.

A script proves that a task can be done by clicks and keys; no policy sees it.
"""

import math
import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError, model_validator

from environments.placeholder import NotFilled, blank, filled, filled_code
from environments.webapp.changes import Edit, Want, changes, edited, score
from schemas import action as act
from schemas.config.section import Count, Section
from schemas.failure import UsageError
from schemas.observation import Element
from schemas.problem import named_problem
from schemas.tables.task import TaskEntry
from schemas.world import State

ACTIONS = ("click", "double", "right", "type", "key", "scroll", "wait")


class ScriptMove(BaseModel):
    """One move: `click`, `double` and `right` name an element, `type` is text, `key` a key, `scroll` a direction."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    click: str | None = None
    double: str | None = None
    right: str | None = None
    type: str | None = None
    key: str | None = None
    scroll: str | None = None
    wait: bool | None = None
    kind: str = ""
    """Kind of the element."""
    near: str = ""
    """Name of an element that selects the closest one of several matches."""
    nth: int = 0
    """Index among several matches, from the top left; -1 is the last."""
    at: tuple[float, float] = (0.5, 0.5)
    """Point in the element, in fractions of its box."""

    @model_validator(mode="after")
    def _one_action(self) -> "ScriptMove":
        if len([name for name in ACTIONS if getattr(self, name) is not None]) != 1:
            raise ValueError(f"a move needs exactly one of {', '.join(ACTIONS)}")
        return self

    @property
    def target(self) -> str | None:
        """Name of the move's element."""
        return next((name for name in (self.click, self.double, self.right) if name is not None), None)


class NotThere(LookupError):
    """Raised if the screen does not show the element of a move."""


def action_for(move: ScriptMove, elements: Sequence[Element]) -> act.Action:
    """Converts a move to an action on a screen; raises NotThere."""
    if move.type is not None:
        return act.Type(content=move.type)
    if move.key is not None:
        return act.Hotkey(key=move.key)
    if move.wait is not None:
        return act.Wait()
    if move.scroll is not None:
        return act.action_of({"type": "scroll", "x": move.at[0], "y": move.at[1], "direction": move.scroll})
    left, top, right, bottom = found(move, elements).box
    point = {"x": left + (right - left) * move.at[0], "y": top + (bottom - top) * move.at[1]}
    kind = "click" if move.click is not None else "left_double" if move.double is not None else "right_single"
    return act.action_of({"type": kind, **point})


def found(move: ScriptMove, elements: Sequence[Element]) -> Element:
    """Finds the element of a move: with exactly this name, else a name that begins with it, else a name that contains
    it."""
    wanted = _plain(move.target or "")
    kinds = [one for one in elements if not move.kind or one.kind == move.kind]
    rules = (
        lambda name: name == wanted,
        lambda name: bool(wanted) and name.startswith(wanted),
        lambda name: bool(wanted) and wanted in name,
    )
    having = next((some for rule in rules if (some := [one for one in kinds if rule(_plain(one.name))])), [])
    having = [one for one in having if one.interactive] or having
    if not having:
        raise NotThere(f"there is no {move.kind or 'element'} {move.target!r} on the screen")
    if move.near:
        x, y = found(ScriptMove(click=move.near), elements).centre
        return min(having, key=lambda one: math.hypot(one.centre[0] - x, (one.centre[1] - y) * 4))
    ordered = sorted(having, key=lambda one: (round(one.box[1], 2), one.box[0]))
    if not -len(ordered) <= move.nth < len(ordered):
        raise NotThere(f"there are {len(ordered)} {move.target!r} on the screen, and number {move.nth} is wanted")
    return ordered[move.nth]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


OURS = Path(__file__).with_name("tasks")
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]


class WebTask(Section):
    """One task of an application; `docs/webapps.md` explains its fields."""

    instruction: str
    difficulty: Literal["easy", "medium", "hard"] = "easy"
    max_steps: Count = 12
    deterministic: bool = True
    draw: dict[str, tuple[JsonValue, ...]] = {}  # noqa: RUF012  (pydantic copies it)
    """Values by name; a seed selects one value of each."""
    edits: tuple[Edit, ...] = ()
    """Edits of the file's state before the task starts."""
    wants: tuple[Want, ...] = ()
    allows: tuple[str, ...] = ()
    """Additional paths that may change."""
    reward: str = ""
    """Replacement of `wants`: a JavaScript expression of the page, a number or true after the task's end, and null or
    false before."""
    script: tuple[ScriptMove, ...] = ()
    golden: tuple[Edit, ...] = ()
    near: tuple[tuple[Edit, ...], ...] = ()


class TaskFile(Section):
    """The tasks of one application."""

    application: Name
    page: str = "/"
    """Path of the first page, without `?sid=`."""
    watches: tuple[str, ...] = ()
    """Fields of the state in which only the wanted and allowed changes may happen."""
    allows: tuple[str, ...] = ()
    state: dict[str, JsonValue] = {}  # noqa: RUF012
    items: dict[str, dict[str, JsonValue]] = {}  # noqa: RUF012
    """Default values of all items of a field of the state."""
    draw: dict[str, tuple[JsonValue, ...]] = {}  # noqa: RUF012
    tasks: Annotated[dict[Name, WebTask], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class WebInstance:
    """A task with the values of one seed."""

    task: WebTask
    instruction: str
    page: str
    initial: State
    watches: tuple[str, ...]
    wants: tuple[Want, ...]
    allows: tuple[str, ...]
    script: tuple[ScriptMove, ...]

    def reward(self, initial: State, current: State) -> float:
        """Returns 1 if the changes between two states are the wanted ones, else 0."""
        return score(changes(initial, current, self.watches), self.wants, self.allows)

    def golden(self, drawn: State) -> State:
        """Returns the state `drawn` after the task is done."""
        return edited(drawn, self.task.golden)

    def near(self, drawn: State) -> list[State]:
        """Returns states in which the task is nearly done, or another change was made."""
        return [edited(drawn, edits) for edits in self.task.near]


def read_tasks(path: Path, key: str = "") -> TaskFile:
    """Reads the tasks of a file; raises UsageError, which names the file and the place in it.

    Args:
        path: path of the file.
        key: the config key that names it, for the error.
    """
    try:
        return _read(path, path.stat().st_mtime_ns if path.is_file() else 0)
    except OSError as error:
        named = f"`{key}`: " if key else ""
        raise UsageError(f"{named}{path} cannot be read: {error.strerror}.", "Correct the path.") from error


def entry_of(file: TaskFile, name: str) -> TaskEntry:
    """Returns the catalog entry of a task."""
    task = file.tasks[name]
    tags = ("webapp", file.application, task.difficulty)
    words = blank(task.instruction)
    return TaskEntry(instruction=words, tags=tags, max_steps=task.max_steps, deterministic=task.deterministic)


def instance(file: TaskFile, name: str, seed: int) -> WebInstance:
    """Makes a task with a seed; equal seeds draw equal values."""
    chance = random.Random(f"{file.application} {name} {seed}")
    return _instance(file, name, {key: chance.choice(values) for key, values in sorted(_draws(file, name).items())})


def _draws(file: TaskFile, name: str) -> Mapping[str, tuple[JsonValue, ...]]:
    return {**file.draw, **file.tasks[name].draw}


def _check(file: TaskFile, name: str) -> None:
    """Fills a task with every value that a seed may draw; raises UsageError for an unknown name in braces."""
    draws = _draws(file, name)
    if empty := [key for key, values in draws.items() if not values]:
        raise UsageError(f"tasks.{name}: `draw.{empty[0]}` has no values.", "Write at least one.")
    for number in range(max(map(len, draws.values()), default=1)):
        _instance(file, name, {key: values[number % len(values)] for key, values in draws.items()})


def _instance(file: TaskFile, name: str, drawn: Mapping[str, Any]) -> WebInstance:
    given = file.tasks[name]
    at = f"tasks.{name}"
    fields = _filled(given.model_dump(exclude_unset=True, exclude={"draw", "reward"}), drawn, at)
    task = WebTask.model_validate({**fields, "reward": _text(given.reward, drawn, f"{at}.reward", filled_code)})
    initial = edited(cast(State, _filled(_whole(file), drawn, "state")), task.edits)
    return WebInstance(
        task, task.instruction, file.page, initial, file.watches, task.wants, (*file.allows, *task.allows), task.script
    )


@cache
def _read(path: Path, changed_at: int) -> TaskFile:
    """Reads a file; the result is cached while the file does not change."""
    try:
        file = TaskFile.model_validate(tomllib.loads(path.read_text("utf-8-sig")))
        for name, task in file.tasks.items():
            if not task.reward and not task.wants:
                raise UsageError(f"task `{name}` has neither wants nor reward.", "Add one of them.")
            _check(file, name)
    except UsageError as error:
        raise UsageError(f"{path}: {error.problem}", error.hint) from error
    except (ValidationError, tomllib.TOMLDecodeError, KeyError) as error:
        problem = named_problem(error) if isinstance(error, ValidationError) else error
        raise UsageError(f"{path}: {problem}.", "docs/webapps.md has an example.") from error
    return file


def _whole(file: TaskFile) -> State:
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
    """Fills the names in braces of a JSON value with the drawn values; raises UsageError with the place of an unknown
    name."""
    if isinstance(value, dict):
        return {
            _text(name, drawn, at): _filled(one, drawn, f"{at}.{name}" if at else name)
            for name, one in cast(dict[str, Any], value).items()
        }
    if isinstance(value, list | tuple):
        return [_filled(one, drawn, f"{at}.{number}") for number, one in enumerate(cast(list[Any], value))]
    return _text(value, drawn, at) if isinstance(value, str) else value


def _text(text: str, drawn: Mapping[str, Any], at: str, fill: Callable[[str, Mapping[str, Any]], Any] = filled) -> Any:
    try:
        return fill(text, drawn)
    except NotFilled as error:
        raise UsageError(f"{at or text}: {error}.", "docs/webapps.md has an example.") from error
