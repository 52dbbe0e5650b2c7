"""Writes a config as a commented TOML file: every key with its meaning, keys at their default as comments.

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
BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
"""Characters of a TOML key that needs no quotes."""


def commented(config: Config) -> str:
    """Writes the file: keys that differ from their default are set.

    A line that begins with `#` and no space is a key at its default: without the `#` it has no effect until its value
    is changed.
    """
    head = "# A key that begins with # is at its default; without the # it has no effect until its value is changed."
    return "\n".join([head, *_section("", config)]) + "\n"


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


def _section(above: str, section: BaseModel) -> Iterator[str]:
    """Yields the lines of a section: its keys, then its subsections."""
    inner: list[tuple[str, BaseModel]] = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            inner.append((f"{above}{name}", value))
        elif name == "environments":
            inner += [(f"{above}{name}.{_key(one)}", its) for one, its in value.items()]
        else:
            yield from _comment(about(type(section), name))
            yield from _entry(name, field, value)
    for name, value in inner:
        doc = " ".join((type(value).__doc__ or "").split())
        yield from ("", *_comment(doc), f"[{name}]", *_section(f"{name}.", value))


def _entry(name: str, field: FieldInfo, value: Any) -> Iterator[str]:
    """Yields the lines of one key, without its comment."""
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    if value is None:
        yield f"# {name} is not set"
    else:
        written = f"{_key(name)} = {_value(value)}"
        yield written if field.is_required() or value != default else f"#{written}"


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
