"""Describe refused values and keys in the user's terms instead of pydantic's terms."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

_TERMS = re.compile(
    r"^(Value error, |Input |(Tuple|List|Dictionary|String|Set) (?=should))"
    r"|, unable to (parse|interpret) .*| after validation"
)

_BRANCH = re.compile(r"(str|int|float|bool|none)$|[a-z-]+\[.*\]$", re.DOTALL)


def problem_of(error: ValidationError) -> tuple[str, str]:
    """Returns the dotted field and the problem of the first error. The field is empty if the whole value is refused.

    The text of the problem fits after the field and a colon.
    """
    first = _deepest(error.errors())
    return ".".join(str(one) for one in first["loc"] if not _is_branch(one)), in_words(first)


def _deepest(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Finds the first error. If a field accepts several types, this is the error of the type that matched furthest."""
    first = found[0]
    at = next((at for at, one in enumerate(first["loc"]) if _is_branch(one)), None)
    if at is None:
        return first
    outer = first["loc"][:at]
    return max((one for one in found if one["loc"][:at] == outer), key=lambda one: len(one["loc"]))


def _is_branch(part: object) -> bool:
    """Checks whether a part of an error's location is a type of a union instead of a field."""
    return isinstance(part, str) and bool(_BRANCH.match(part))


def named_problem(error: ValidationError) -> str:
    """Returns `field: problem` for the first error."""
    where, problem = problem_of(error)
    return f"{where}: {problem}" if where else problem


def in_words(found: Mapping[str, Any]) -> str:
    """Returns the problem of one pydantic error as text."""
    more = found.get("ctx", {})
    match found["type"]:
        case "missing":
            return "it is missing"
        case "extra_forbidden":
            return "there is no such field"
        case "union_tag_invalid":
            known = more["expected_tags"].replace("'", "")
            return f"there is no {more['tag']!r}; known: {known}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return 'should be an object, such as {"key": "value"}'
        case "list_type":
            given = found.get("input")
            example = f", such as {json.dumps([given])}" if isinstance(given, str) and len(given) <= 80 else ""
            return f"should be a list, in brackets{example}"
        case "union_tag_not_found":
            missing = more["discriminator"].strip("'")
            return f"`{missing}` is missing"
        case _:
            plain = _TERMS.sub("", found["msg"])
            return plain[:1].lower() + plain[1:]


CLOSE = 0.65
"""Minimum similarity of a suggested key, in [0, 1]."""
ELSEWHERE = {"lr": ("learning_rate",), "path": ("base", "uri", "folder"), "model": ("base",)}
"""Keys of other programs, with the keys of this project."""


COUNTED = re.compile(r"(?:n|num|number_of)_(.+)|(.+)_(?:count|number)")
"""Pattern of other programs' keys for a number. This project uses the plural: `browsers` for `browser_count`."""


def keys_of(section: type[BaseModel], where: Sequence[str | int]) -> list[str]:
    """Lists the keys of the section at a path inside another section; empty if there is no section with fixed keys."""
    found = _as_section(reduce(_inside, where, section))
    return list(found.model_fields) if found else []


def nearest(key: str, known: Sequence[str]) -> str | None:
    """Finds the known key that the user probably meant; None if no key is similar."""
    if meant := [one for one in ELSEWHERE.get(key, ()) if one in known]:
        return meant[0]
    if (counted := COUNTED.fullmatch(key)) and (plural := f"{(counted[1] or counted[2]).rstrip('s')}s") in known:
        return plural
    return next(iter(get_close_matches(key, known, n=1, cutoff=CLOSE)), None)


def place(section: type[BaseModel], where: Sequence[str | int]) -> list[str]:
    """Lists the keys in a pydantic location, without pydantic's names of union members."""
    found: Any = section
    keys: list[str] = []
    for key in where:
        if get_origin(_plain(found)) in (Union, UnionType):  # several types other than None
            break
        keys.append(str(key))
        found = _inside(found, key)
    return keys


def _inside(annotation: Any, key: str | int) -> Any:
    """Finds the type of a key inside an annotated type; None if the key is unknown."""
    if (section := _as_section(annotation)) is not None:
        return section.model_fields[str(key)].annotation if key in section.model_fields else None
    annotation = _plain(annotation)
    inner = get_args(annotation)
    if get_origin(annotation) is dict:
        return inner[1]
    return inner[0] if get_origin(annotation) in (list, tuple) and inner else None


def _as_section(annotation: Any) -> type[BaseModel] | None:
    plain = _plain(annotation)
    return plain if isinstance(plain, type) and issubclass(plain, BaseModel) else None


def _plain(annotation: Any) -> Any:
    """Removes the metadata of an annotation, and None from a union with a single other type."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return _plain(inner[0])
    if origin in (Union, UnionType):
        kinds = [one for one in inner if one is not type(None)]
        return _plain(kinds[0]) if len(kinds) == 1 else annotation
    return annotation


MOST_NAMED = 12
"""Maximum number of a section's keys in the message about an unknown key without a similar key."""


def explain(error: ValidationError, root: type[BaseModel], above: str = "") -> str:
    """Lists every refused key with its reason. For an unknown key, the nearest known key is added.

    Args:
        error: the error of pydantic.
        root: the section that was read.
        above: dotted key of this section; empty for the whole config.
    """
    lines: list[str] = []
    places = [(place(root, item["loc"]), item) for item in error.errors()]
    for at, (where, item) in enumerate(places):
        dotted, given = ".".join([above, *where] if above else where), item.get("input")
        key = f"`{dotted}`"
        if item["type"] == "extra_forbidden":
            known = keys_of(root, where[:-1])
            near = nearest(where[-1], known)
            meant = [near] if near else named(root, where[-1])
            listed = above or len(known) <= MOST_NAMED
            there = f"; known: {', '.join(known) or 'none'}." if listed else "; docs/config.md has all."
            lines.append(f"unknown key {key}" + (f"; did you mean `{'` or `'.join(meant)}`?" if meant else there))
        elif item["type"] == "missing":
            first = next(iter([] if above else keys_of(root, where)), None)
            lines.append(f"{key} is not set. Set it: {dotted}{f'.{first}' if first else ''}=...")
        elif item["type"] == "tuple_type":
            first = next(iter(cast(dict[str, Any], given)), "") if isinstance(given, dict) else given
            one = first if isinstance(first, int | float) else str(first)
            such = shlex.quote(f"{dotted}=[{json.dumps(one)}]")
            lines.append(f"{key} should be a list, such as {such} (got {given!r}).")
        elif where not in [other for other, _ in places[:at]]:  # each type of a union refuses the value
            reasons = [_bounded(in_words(other)) for there, other in places if there == where]
            wanted = ", or ".join([reasons[0], *(re.sub("^(should|must) be ", "", one) for one in reasons[1:])])
            got = "" if isinstance(given, dict) else f" (got {given!r})"
            lines.append(f"{key}: {wanted}{got}.")
    return " ".join(lines)


_BOUNDS = {
    "greater_than_equal": ("should be greater than or equal to", "must be at least", "ge", "{} or more"),
    "less_than_equal": ("should be less than or equal to", "must be at most", "le", "{} or less"),
    "greater_than": ("should be greater than", "must be above", "gt", "more than {}"),
    "less_than": ("should be less than", "must be below", "lt", "less than {}"),
}
"""For each of pydantic's errors about a bound: its text, the text of messages, the name of the bound, and the fix."""


def _bounded(text: str) -> str:
    """Returns a problem with the bound in a message's terms."""
    for words, own, _, _ in _BOUNDS.values():
        if text.startswith(words):
            return own + text.removeprefix(words)
    return text


def fix(error: ValidationError, root: type[BaseModel], above: str = "") -> str:
    """Returns the fix of the first refused value, as a hint; empty if the text of `explain` names it.

    The arguments are those of `explain`.
    """
    item = error.errors()[0]
    dotted = ".".join(filter(None, (above, *place(root, item["loc"]))))
    if item["type"] in _BOUNDS and dotted:
        _, _, bound, to = _BOUNDS[item["type"]]
        return f"Set `{dotted}` to {to.format(format(item.get('ctx', {}).get(bound, 0), 'g'))}."
    if item["type"] in ("extra_forbidden", "missing", "tuple_type", "value_error") or not dotted:
        return ""
    return f"docs/config.md describes `{dotted}`." if not above else f"Correct `{dotted}`."


def named(section: type[BaseModel], key: str, *where: str) -> list[str]:
    """Lists the dotted keys that end with a name, in a section and the sections inside it.

    Args:
        section: the section.
        key: the name.
        where: dotted key of the section, in parts.
    """
    inner = [(name, field.annotation) for name, field in section.model_fields.items()]
    found = [".".join([*where, name]) for name, _ in inner if name == key]
    for name, kind in inner:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += named(kind, key, *where, name)
    return found
