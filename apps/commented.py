"""Writes a config as a commented TOML file: the keys that are set, or every key with its meaning.

The comments are the config classes' docstrings, as on the page of all keys, so a new key needs no change in this
module.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, cast

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemas.config.sections import Config

WIDTH = 118
OFTEN_SET = ("iterations", "lake.uri", "policy.base", "train.method", "train.steps", "evaluate.seeds")
"""Keys that the short file lists as comments if they are at their default."""
BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
"""Characters of a TOML key that needs no quotes."""


def commented(config: Config, *, full: bool = True) -> str:
    """Writes the file: keys that differ from their default are set.

    A line that begins with `#` and no space is a key with its default value.

    Args:
        config: the config.
        full: whether to write every key with its meaning; otherwise, the keys that are set and `OFTEN_SET`.
    """
    head = "# Keys behind a # have their default value. To change one, remove the # and change the value."
    if full:
        return "\n".join([head, *_section("", config)]) + "\n"
    more = "# docs/config.md explains all keys; `flywheel init --full` writes them. Add one as a line: KEY = VALUE."
    return "\n".join([more, head, *_set_keys("", config)]) + "\n"


def about(model: type[BaseModel], field: str) -> str:
    """Returns the docstring of a model's field in one line."""
    return " ".join(_docs(model).get(field, "").split())


@cache
def _docs(model: type[BaseModel]) -> dict[str, str]:
    """Reads fields' docstrings from the source, since pydantic would read all of them at every start of a process."""
    found: dict[str, str] = {}
    for kind in reversed([one for one in model.__mro__ if issubclass(one, BaseModel) and one is not BaseModel]):
        (made,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        for one, doc in pairwise(cast(ast.ClassDef, made).body):
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(doc, ast.Expr):
                found[one.target.id] = str(cast(ast.Constant, doc.value).value)
    return found


def _section(name: str, section: BaseModel) -> Iterator[str]:
    """Yields the lines of a section: its keys, then its subsections."""
    for key, field in _keys(section):
        yield from _comment(about(type(section), key))
        yield _entry(key, field, getattr(section, key))
    for inner, value in _subsections(name, section):
        doc = " ".join((type(value).__doc__ or "").split())
        yield from ("", *_comment(doc), f"[{inner}]", *_section(inner, value))


def _set_keys(name: str, section: BaseModel) -> Iterator[str]:
    """Yields a line for each key of a section and its subsections that is set or in `OFTEN_SET`, by its full name."""
    of_environment = name.startswith("environments.")
    prefix = f"{name}." if name else ""
    lines: list[str] = []
    for key, field in _keys(section):
        line = _entry(key, field, getattr(section, key))
        implied = of_environment and line == f"kind = {_value(name.partition('.')[2])}"
        if f"{prefix}{key}" in OFTEN_SET or not (line.startswith("#") or implied):
            lines.append(f"#{prefix}{line[1:]}" if line.startswith("#") else prefix + line)
    yield from lines or ([f"{name} = {{}}"] if of_environment else [])
    for inner, value in _subsections(name, section):
        yield from _set_keys(inner, value)


def _keys(section: BaseModel) -> Iterator[tuple[str, FieldInfo]]:
    """Yields the keys of a section that are not sections themselves."""
    for key, field in type(section).model_fields.items():
        if key != "environments" and not isinstance(getattr(section, key), BaseModel):
            yield key, field


def _subsections(name: str, section: BaseModel) -> Iterator[tuple[str, BaseModel]]:
    """Yields the sections within a section, by their full names."""
    above = f"{name}." if name else ""
    for key in type(section).model_fields:
        value = getattr(section, key)
        if isinstance(value, BaseModel):
            yield f"{above}{key}", value
        elif key == "environments":
            yield from ((f"{above}{key}.{_key(one)}", its) for one, its in value.items())


def _entry(name: str, field: FieldInfo, value: Any) -> str:
    """Writes the line of one key, without its comment."""
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    if value is None:
        return f"# {name} is not set"
    written = f"{_key(name)} = {_value(value)}"
    return written if field.is_required() or value != default else f"#{written}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)


def _key(name: str) -> str:
    return name if name and set(name) <= BARE else json.dumps(name)


def _value(value: Any) -> str:
    """Writes a value in one line of TOML, with strings as in JSON, except that TOML requires an escape for DEL."""
    if isinstance(value, Mapping):
        items = cast(Mapping[str, Any], value).items()
        return "{" + ", ".join(f"{_key(name)} = {_value(one)}" for name, one in items if one is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, cast(list[Any], value))) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
