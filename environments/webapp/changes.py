"""Compare two states of a web application, and check that the changes are the ones that a task wants.

A state is JSON. Paths such as `emails/e3/starred` name leaves. A list whose items all have an `id` (or, for example, a
`messageId`) is indexed by it, so its order does not matter; any other list is a leaf. A task wants some changes and
allows others (`*` in a path matches any name); every other change fails the task.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from html import unescape
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from schemas.world import State

ABSENT = object()
"""Marks a value that does not exist."""
NEW = "+"
"""The last part of a path for an item to be added."""
Changed = Mapping[str, tuple[Any, Any]]
"""Values before and after, by path."""


class _ChangePart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Match(_ChangePart):
    """Conditions on a value, as an alternative to an exact value."""

    contains: tuple[str, ...] = ()
    """Texts that the value contains, ignoring case, tags and line breaks; or items of a list."""
    starts: str = ""
    """Prefix of the value's text."""
    says: str | None = None
    """Whole text of the value, ignoring tags and white space; a missing value has an empty text."""
    besides: tuple[str, ...] = ()
    """Texts that may follow or precede the expected one, such as a signature."""
    length: int | None = None
    """Number of the value's items; a missing value has none."""

    def holds(self, value: Any) -> bool:
        """Whether a value meets the conditions; a missing value can only meet conditions of an empty text or no
        items."""
        if value is ABSENT and self.says is None and self.length is None:
            return False
        value = "" if value is None or value is ABSENT else value
        if self.says is not None and _spaced(self.says) not in (_text(value), self._without_besides(value)):
            return False
        if self.length is not None and _length(value) != self.length:
            return False
        if isinstance(value, list):
            return all(one in value for one in self.contains)
        words = _text(value).casefold()
        return words.startswith(self.starts.casefold()) and all(_text(one).casefold() in words for one in self.contains)

    def _without_besides(self, value: Any) -> str:
        text = _text(value)
        for one in self.besides:
            text = _spaced(text.replace(_spaced(one), " ", 1))
        return text


class Want(_ChangePart):
    """One change that a task wants: `to` a value, `like` a condition, `has` for an added item, or `gone`."""

    at: str
    """The path; `.../+` for an item to be added."""
    to: JsonValue = None
    like: Match | None = None
    has: dict[str, Annotated[Match | JsonValue, Field(union_mode="left_to_right")]] = {}
    """Fields of an added item, by their paths within the item."""
    gone: bool = False

    @model_validator(mode="after")
    def _one_kind(self) -> "Want":
        kinds = [name for name in ("to", "like", "has", "gone") if name in self.model_fields_set]
        if len(kinds) != 1:
            raise ValueError(f"{self.at}: has {' and '.join(kinds) or 'none'}; give one of to, like, has and gone")
        if self.at.endswith(f"/{NEW}") != ("has" in kinds):
            raise ValueError(f"{self.at}: `has` is of an item that is added, whose path ends in /{NEW}")
        return self

    def met(self, path: str, after: Any) -> bool:
        """Whether a change is the wanted one."""
        if not self.has:
            return path == self.at and self._holds(after)
        parent = self.at.removesuffix(NEW)
        inside = path.startswith(parent) and "/" not in path.removeprefix(parent)
        return inside and after is not ABSENT and all(_like(_field(after, at), want) for at, want in self.has.items())

    def _holds(self, after: Any) -> bool:
        if self.gone:
            return after is ABSENT
        return after is not ABSENT and _like(after, self.to if self.like is None else self.like)


class Edit(_ChangePart):
    """A change of a state: `to` a value, or `gone`."""

    at: str
    to: JsonValue = None
    gone: bool = False


def changes(initial: State, current: State, watched: Iterable[str]) -> Changed:
    """Returns the differences between two states in the watched fields."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in watched:
        _compare(name, initial.get(name, ABSENT), current.get(name, ABSENT), found)
    return found


def score(changed: Changed, wanted: Sequence[Want], allowed: Iterable[str]) -> float:
    """Returns 1 if every wanted change happened once, and all other changes are allowed; else 0."""
    left = {path: after for path, (_, after) in changed.items()}
    for want in wanted:
        path = next((path for path, after in left.items() if want.met(path, after)), None)
        if path is None:
            return 0.0
        del left[path]
    patterns = tuple(allowed)
    return float(bool(wanted) and all(any(fnmatchcase(path, one) for one in patterns) for path in left))


def edited(state: State, edits: Iterable[Edit]) -> State:
    """Returns a state after edits; raises KeyError with the path of a value that does not exist."""
    for edit in edits:
        state = _edited(state, edit.at.split("/"), edit)
    return state


def _compare(path: str, before: Any, after: Any, found: dict[str, tuple[Any, Any]]) -> None:
    if _same(before, after):
        return
    old, new = _named(before), _named(after)
    if old is None or new is None:
        found[path] = (before, after)
        return
    for name in {**old, **new}:
        _compare(f"{path}/{name}", old.get(name, ABSENT), new.get(name, ABSENT), found)


def _same(one: Any, other: Any) -> bool:
    """Returns whether JSON values are equal; true differs from 1, but 2.0 equals 2."""
    if isinstance(one, dict) and isinstance(other, dict):
        held, more = cast(dict[str, Any], one), cast(dict[str, Any], other)
        return held.keys() == more.keys() and all(_same(held[name], more[name]) for name in held)
    if isinstance(one, list) and isinstance(other, list):
        some, others = cast(list[Any], one), cast(list[Any], other)
        return len(some) == len(others) and all(map(_same, some, others))
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _named(value: Any) -> dict[str, Any] | None:
    """Returns the children of a value, by name; None if it is a leaf."""
    if isinstance(value, dict):
        return cast(dict[str, Any], value)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in cast(list[Any], value)):
        return None
    items = cast(list[dict[str, Any]], value)
    key = _key(items)
    named = {str(one.get(key)): one for one in items}
    return named if len(named) == len(items) and all(key in one for one in items) else None


def _key(items: Sequence[Mapping[str, Any]]) -> str:
    """Returns the field that identifies an item: `id`, else the first field whose name ends in `Id`."""
    first = items[0] if items else {}
    return "id" if not items or "id" in first else next((name for name in first if name.endswith("Id")), "id")


def _field(value: Any, path: str) -> Any:
    for name in path.split("/"):
        if isinstance(value, list) and name.isdigit():
            value = cast(list[Any], value)[int(name)] if int(name) < len(cast(list[Any], value)) else ABSENT
        else:
            value = (_named(value) or {}).get(name, ABSENT)
    return value


def _like(value: Any, want: JsonValue | Match) -> bool:
    if isinstance(want, Match):
        return want.holds(value)
    if value is ABSENT:
        return False
    if isinstance(want, str) and isinstance(value, str):
        return " ".join(value.split()) == " ".join(want.split())
    return _same(value, want)


def _text(value: Any) -> str:
    """Returns a value's text without tags, with white space collapsed to single spaces."""
    return _spaced(unescape(re.sub(r"<[^>]*>", " ", str(value))))


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _length(value: Any) -> int | None:
    """Returns the number of items of a list; 0 for an empty or missing value, None for any other."""
    return len(cast(list[Any], value)) if isinstance(value, list) else 0 if value == "" else None


def _edited(value: Any, path: Sequence[str], edit: Edit) -> Any:
    if not path:
        return edit.to
    name, last = path[0], len(path) == 1
    if isinstance(value, list):
        return _edited_list(cast(list[Any], value), path, edit)
    if not isinstance(value, dict) or (name not in value and not last):
        raise KeyError(edit.at)
    fields = dict(cast(dict[str, Any], value))
    if last and edit.gone:
        del fields[name]
    elif last and name == NEW:
        assert isinstance(edit.to, dict)
        fields[str(edit.to[_key([edit.to])])] = edit.to
    else:
        fields[name] = _edited(fields.get(name), path[1:], edit)
    return fields


def _edited_list(items: list[Any], path: Sequence[str], edit: Edit) -> list[Any]:
    name, last = path[0], len(path) == 1
    if last and name == NEW:
        return [*items, edit.to]
    key = _key(items)
    places = [at for at, one in enumerate(items) if str(one.get(key)) == name]
    if not places:
        raise KeyError(edit.at)
    if last and edit.gone:
        return items[: places[0]] + items[places[0] + 1 :]
    return [*items[: places[0]], _edited(items[places[0]], path[1:], edit), *items[places[0] + 1 :]]
