"""Writes the message for a refused config: the key, its error, and its new name if it moved."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from schemas.config.section import is_section
from schemas.failure import UsageError
from schemas.keys import keys_of, nearest, place
from schemas.problem import in_words

MOST_NAMED = 12
"""Maximum keys of a section that are named where none is like an unknown one."""


def refuse_renamed(fields: Mapping[str, Any], renamed: Mapping[str, str]) -> None:
    """Raises UsageError for old keys, with their new names.

    Args:
        fields: a config as it was written.
        renamed: old dotted key to new dotted key, or to a sentence on the replacement.
    """
    found = {old: new for old, new in renamed.items() if _holds(fields, old.split("."))}
    if found:
        lines = (f"`{old}` is now {new if ' ' in new else f'`{new}`'}" for old, new in found.items())
        raise UsageError(f"Config: {'; '.join(lines)}.", "Write the new key in place of the old one.")


def explain(error: ValidationError, root: type[BaseModel]) -> str:
    """Lists every refused key of `root` with its reason; an unknown one with the nearest that is known."""
    lines: list[str] = []
    places = [(place(root, item["loc"]), item) for item in error.errors()]
    for at, (where, item) in enumerate(places):
        key, given = f"`{'.'.join(where)}`", item.get("input")
        if item["type"] == "extra_forbidden":
            known = keys_of(root, where[:-1])
            near = nearest(where[-1], known)
            meant = [near] if near else named(root, where[-1])
            there = f"; known: {', '.join(known)}." if len(known) <= MOST_NAMED else "; docs/config.md has all."
            lines.append(f"unknown key {key}" + (f"; did you mean `{'` or `'.join(meant)}`?" if meant else there))
        elif item["type"] == "tuple_type":
            one = (
                given if isinstance(given, int | float) else next(iter(given), "") if is_section(given) else str(given)
            )
            such = shlex.quote(f"{'.'.join(where)}=[{json.dumps(one)}]")
            lines.append(f"{key} should be a list, such as {such} (got {given!r}).")
        elif where not in [other for other, _ in places[:at]]:  # a value of several kinds is refused by each
            reasons = [in_words(other) for there, other in places if there == where]
            said = ", or ".join([reasons[0], *(one.removeprefix("should be ") for one in reasons[1:])])
            got = "" if is_section(given) else f" (got {given!r})"
            lines.append(f"{key}: {said}{got}.")
    return "Config: " + " ".join(lines)


def named(section: type[BaseModel], key: str, *where: str) -> list[str]:
    """Lists the dotted keys of this name in the sections of `section`, whose own dotted key is `where`."""
    inner = [(name, field.annotation) for name, field in section.model_fields.items()]
    found = [".".join([*where, name]) for name, _ in inner if name == key]
    for name, kind in inner:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += named(kind, key, *where, name)
    return found


def _holds(fields: Any, keys: list[str]) -> bool:
    for key in keys:
        if not is_section(fields) or key not in fields:
            return False
        fields = fields[key]
    return True
