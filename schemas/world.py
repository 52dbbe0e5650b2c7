"""Worlds, from which new tasks are made: the states of a sandbox, the linked pages in it, and checks on the state.

A world is described by data alone, so that makers of tasks need no sandbox: fields of a JSON state, and a site of
entities with attributes and links, each attribute with its wording in instructions. A task made of it is a `Setup`: its
initial state and the checks of its reward.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, JsonValue

State = dict[str, Any]
"""JSON by field."""


class _WorldPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StateField(_WorldPart):
    """One field of a world's state."""

    name: str
    kind: Literal["page", "text", "flag", "counts", "scores", "parts"]
    """`page`: a page's name; `counts`: how many, at least 1, by an entity's name; `scores`: a list of numbers;
    `parts`: names of `World.parts`, one space between two."""
    about: str
    free: bool = False
    """Whether it may take any value in a task that does not ask for it, as the page that is open always may."""

    @property
    def guarded(self) -> bool:
        """Checks whether a task that does not ask for it is to leave it as it was."""
        return not self.free and self.kind != "page"


class Attribute(_WorldPart):
    """A property of entities of one kind, and its wording."""

    of: str
    """The kind of entity."""
    name: str
    exact: str
    """Words with `{}` for the value: `costs {}`."""
    vague: str = ""
    """Vaguer words: of a number with two `{}` for a range, of a word with one for its family; empty for none."""
    width: int = 0
    """Of a number: how many values the range holds that replaces one of them."""
    families: Mapping[str, str] = {}
    """Of a word: its family."""
    listed: bool = False
    """Whether there is a page for each value that lists the entities that have it."""


class Relation(_WorldPart):
    """A link from entities of one kind to those of another."""

    of: str
    name: str
    to: str


class Entity(_WorldPart):
    """One page of a site."""

    key: str
    """Name of its page."""
    kind: str
    title: str
    values: Mapping[str, int | str]
    """Values by attribute."""
    links: Mapping[str, str] = {}
    """Keys of entities by relation."""


class Site(_WorldPart):
    """Linked pages."""

    attributes: tuple[Attribute, ...]
    relations: tuple[Relation, ...]
    entities: tuple[Entity, ...]
    goods: str = ""
    """The kind of entity that can be put into a cart."""

    def of_kind(self, kind: str) -> list[Entity]:
        """Lists all entities of a kind."""
        return [one for one in self.entities if one.kind == kind]

    def about(self, kind: str) -> list[Attribute]:
        """Lists the attributes of entities of a kind."""
        return [one for one in self.attributes if one.of == kind]


class Root(_WorldPart):
    """One of the environment's own tasks, as the root of tasks made from it."""

    task: str
    """Template of the task."""
    fields: tuple[str, ...]
    """Fields of the state that its reward reads. Any other task with rewards for them asks for the same."""


class World(_WorldPart):
    """States, pages and own tasks of an environment."""

    fields: tuple[StateField, ...]
    start: Mapping[str, JsonValue]
    """State in which nothing was done."""
    pages: tuple[str, ...] = ()
    """Pages that are no entity's."""
    site: Site | None = None
    roots: Mapping[str, Root] = {}
    """The environment's own task for each thing that can be asked: tasks made of that descend from it."""
    parts: Mapping[str, str] = {}
    """Own tasks that can be rolled out one after the other in one trajectory, each with its instruction."""

    def asked(self, checks: Iterable["FieldCheck"], initial: Mapping[str, Any]) -> tuple[str, ...]:
        """Lists the own tasks that some checks ask for, whatever the words.

        They are those whose fields are to be changed or, where they change on the way, to be left at a value; and those
        that are parts.
        """
        guarded = {field.name for field in self.fields if field.guarded}
        read = {one.field for one in checks if one.field not in guarded or not one.holds(initial)}
        parts = [name for field in self.fields if field.kind == "parts" for name in initial[field.name].split()]
        return tuple(dict.fromkeys([*(one.task for one in self.roots.values() if read & set(one.fields)), *parts]))

    def guards(self, checks: Collection["FieldCheck"], initial: Mapping[str, Any]) -> tuple["FieldCheck", ...]:
        """Builds a check on each guarded field that no other check reads: it must stay as it was."""
        read = {one.field for one in checks}
        kept = [field.name for field in self.fields if field.guarded and field.name not in read]
        return tuple(FieldCheck(field=name, value=initial[name]) for name in kept)

    def problem(self, state: Mapping[str, Any]) -> str:
        """Describes the error of a state; empty if there is none."""
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
    """A check that one field of the state holds one value; invisible spaces of a text do not matter."""

    field: str
    value: JsonValue
    exact: bool = False
    """Whether the case of a text matters, as it does where the words give it literally."""

    def holds(self, state: Mapping[str, Any]) -> bool:
        """Checks whether it holds."""
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
    """Writes the instruction of several tasks one after the other."""
    parts = " ".join(f"({number}) {one}" for number, one in enumerate(instructions, 1))
    return f"Do {len(instructions)} tasks one after the other: {parts}"


def canonical(value: object) -> str:
    """Writes JSON with sorted keys: equal values are equal texts."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _plain(value: Any, exact: bool) -> object:
    """Normalises texts: without invisible spaces and, unless exact, case; kinds are kept apart: true is not 1."""
    if isinstance(value, str):
        return " ".join((value if exact else value.casefold()).split())
    return type(value) is bool, value
