"""Define worlds: descriptions of an environment from which makers propose new tasks.

A world describes the fields of a sandbox's JSON state, and a site: entities with attributes, and links between them.
Each attribute has its wording in instructions. A world consists of data only, so makers need no sandbox. A made task
has a `Setup`: its initial state and the checks that give its reward.

`curation.synthesis.player` walks through an environment's linked pages without a sandbox, to search for the goal of a
task. The step limit of the task follows from the cost of this search.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, JsonValue

State = dict[str, Any]
"""JSON value by field."""


class PageItem(NamedTuple):
    """One item of a page."""

    kind: str
    """`heading`, `text`, `link`, `button` or `text field`."""
    name: str
    value: str = ""
    """Text of a text field."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Content of a page that links to entities: all entities of a kind, or all with certain values."""

    kind: str
    values: Mapping[str, int | str] = field(default_factory=dict[str, int | str])


class PageWalk(ABC):
    """A visit to the pages. Each method except `items` is one step of a policy."""

    state: State

    @abstractmethod
    def items(self) -> Sequence[PageItem]:
        """Lists the items of the open page, in reading order."""

    @abstractmethod
    def click(self, at: int) -> None:
        """Clicks an item, given its index in `items`."""

    @abstractmethod
    def clear(self) -> None:
        """Selects all text of the focused field, so that typing replaces it."""

    @abstractmethod
    def type(self, text: str) -> None:
        """Types text into the focused field."""


class Layout(ABC):
    """Layout of an environment's linked pages. A player may know the layout, but not the content of single pages."""

    home: str = "Home"
    """Name of the link to the home page, which is on every page. The home page links to all listings."""
    listings: Mapping[str, Listing]
    """Listings, by the name of their link on the home page."""

    @abstractmethod
    def walk(self, initial: State, seed: int) -> PageWalk:
        """Starts a new visit from a state, with the seed of a trajectory."""


class _WorldPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class StateField(_WorldPart):
    """One field of a world's state."""

    name: str
    kind: Literal["page", "text", "flag", "counts", "scores", "parts"]
    """`page`: name of a page. `text`: a text. `flag`: true or false. `counts`: numbers of at least 1, by the name of an
    entity. `scores`: a list of numbers. `parts`: names of `World.parts`, separated by spaces."""
    about: str
    free: bool = False
    """Whether the field may have any value at the end of a task that does not ask for it. A field of kind `page` always
    may."""

    @property
    def guarded(self) -> bool:
        """Checks whether a task that does not ask for this field must leave it unchanged."""
        return not self.free and self.kind != "page"


class Attribute(_WorldPart):
    """A property of all entities of one kind, and its wording in instructions."""

    of: str
    """Kind of the entities."""
    name: str
    exact: str
    """Wording with `{}` for the value, such as `costs {}`."""
    vague: str = ""
    """Vaguer wording; empty for none. A number has two `{}` for a range, and a word has one `{}` for its family."""
    width: int = 0
    """For a number: size of the range that replaces a value in the vaguer wording."""
    families: Mapping[str, str] = {}
    """For a word: family of each value."""
    listed: bool = False
    """Whether each value has a page that lists the entities with this value."""


class Relation(_WorldPart):
    """A link from entities of one kind to entities of another kind."""

    of: str
    name: str
    to: str


class Entity(_WorldPart):
    """One page of a site."""

    key: str
    """Name of the entity's page."""
    kind: str
    title: str
    values: Mapping[str, int | str]
    """Value of each attribute, by name."""
    links: Mapping[str, str] = {}
    """Key of the linked entity, by relation."""


class Site(_WorldPart):
    """The linked pages of a world."""

    attributes: tuple[Attribute, ...]
    relations: tuple[Relation, ...]
    entities: tuple[Entity, ...]
    goods: str = ""
    """Kind of entities that can be put into a cart."""

    def of_kind(self, kind: str) -> list[Entity]:
        """Lists all entities of a kind."""
        return [one for one in self.entities if one.kind == kind]

    def about(self, kind: str) -> list[Attribute]:
        """Lists the attributes of entities of a kind."""
        return [one for one in self.attributes if one.of == kind]


class Root(_WorldPart):
    """A task of the environment that made tasks descend from."""

    task: str
    """Template of the task."""
    fields: tuple[str, ...]
    """Fields of the state that the task's reward reads. A made task whose reward reads one of them descends from this
    task."""


class World(_WorldPart):
    """States, pages and tasks of an environment."""

    fields: tuple[StateField, ...]
    start: Mapping[str, JsonValue]
    """State before any action."""
    pages: tuple[str, ...] = ()
    """Pages that belong to no entity."""
    site: Site | None = None
    roots: Mapping[str, Root] = {}
    """Tasks of the environment that made tasks descend from, by the kind of request."""
    parts: Mapping[str, str] = {}
    """Instructions of tasks that one trajectory can do one after the other, by task."""

    def asked(self, checks: Iterable["FieldCheck"], initial: Mapping[str, Any]) -> tuple[str, ...]:
        """Lists the tasks of the environment that a made task asks for, by its checks instead of its words.

        These are tasks whose fields the checks read, apart from guarded fields that must stay unchanged; and the tasks
        that are parts.
        """
        guarded = {field.name for field in self.fields if field.guarded}
        read = {one.field for one in checks if one.field not in guarded or not one.holds(initial)}
        parts = [name for field in self.fields if field.kind == "parts" for name in initial[field.name].split()]
        return tuple(dict.fromkeys([*(one.task for one in self.roots.values() if read & set(one.fields)), *parts]))

    def guards(self, checks: Collection["FieldCheck"], initial: Mapping[str, Any]) -> tuple["FieldCheck", ...]:
        """Builds a check for each guarded field that no other check reads. The field must not change."""
        read = {one.field for one in checks}
        kept = [field.name for field in self.fields if field.guarded and field.name not in read]
        return tuple(FieldCheck(field=name, value=initial[name]) for name in kept)

    def problem(self, state: Mapping[str, Any]) -> str:
        """Describes the error of a state; empty if the state is valid."""
        known = {field.name: field.kind for field in self.fields}
        if missing := known.keys() - state.keys():
            return f"field {min(missing)} is missing"
        if unknown := state.keys() - known.keys():
            return f"there is no field {min(unknown)}"
        wrong = [name for name, kind in known.items() if not self._fits(kind, state[name])]
        return f"field {wrong[0]} cannot be {json.dumps(state[wrong[0]])[:80]}" if wrong else ""

    def _fits(self, kind: str, value: Any) -> bool:
        entities = self.site.entities if self.site else ()
        match kind:
            case "page":
                return value in {*self.pages, *(one.key for one in entities)}
            case "flag":
                return isinstance(value, bool)
            case "parts":
                return isinstance(value, str) and set(value.split()) <= self.parts.keys()
            case "counts":
                goods = {one.key for one in entities if self.site and one.kind == self.site.goods}
                return isinstance(value, dict) and all(
                    name in goods and type(count) is int and 0 < count < 100
                    for name, count in cast(dict[str, Any], value).items()
                )
            case "scores":
                return isinstance(value, list) and all(
                    isinstance(one, int | float) and -1 <= one <= 1 and not isinstance(one, bool)
                    for one in cast(list[Any], value)
                )
            case _:
                return isinstance(value, str) and len(value) <= 200


class FieldCheck(_WorldPart):
    """A check that one field of the state has one value. Extra spaces in a text do not matter."""

    field: str
    value: JsonValue
    exact: bool = False
    """Whether the case of a text matters, because the instruction quotes the text."""

    def holds(self, state: Mapping[str, Any]) -> bool:
        """Checks whether a state has the value."""
        return self.field in state and _plain(state[self.field], self.exact) == _plain(self.value, self.exact)


class Setup(_WorldPart):
    """Initial state of a task, and its reward."""

    initial: dict[str, JsonValue]
    checks: tuple[FieldCheck, ...]

    def text(self) -> str:
        """Writes canonical JSON."""
        return json.dumps(self.model_dump(exclude_defaults=True), sort_keys=True)


def score(checks: Iterable[FieldCheck], state: Mapping[str, Any]) -> float:
    """Returns 1 if there are checks and all of them hold, else 0."""
    held = [check.holds(state) for check in checks]
    return float(bool(held) and all(held))


def in_turn(instructions: Sequence[str]) -> str:
    """Returns the instruction of several tasks to do one after the other."""
    parts = " ".join(f"({number}) {one}" for number, one in enumerate(instructions, 1))
    return f"Do {len(instructions)} tasks one after the other: {parts}"


def canonical(value: object) -> str:
    """Returns JSON with sorted keys, so that equal values give equal texts."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _plain(value: Any, exact: bool) -> object:
    """Normalises a value for comparison. Texts lose extra spaces and, unless exact, case. Booleans differ from
    numbers."""
    if isinstance(value, str):
        return " ".join((value if exact else value.casefold()).split())
    return type(value) is bool, value
