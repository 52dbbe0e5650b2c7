"""Reads a config from a TOML file, then `FLYWHEEL__SECTION__KEY` variables, then `section.key=value` words."""

import json
import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from schemas.config.sections import Config, read_toml
from schemas.failure import UsageError

PREFIX = "FLYWHEEL__"


def load_config(path: str | Path, words: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> Config:
    """The resolved config.

    Raises:
        UsageError: a missing or broken file, an unknown key, a value of the wrong kind; names the field and the mend.
    """
    fields = read_toml(Path(path))
    for name, value in sorted((os.environ if environ is None else environ).items()):
        if name.startswith(PREFIX):
            _put(fields, name[len(PREFIX) :].lower().split("__"), _value(value))
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"`{word}` is not of the form section.key=value.", "Write, for example, train.steps=100.")
        _put(fields, key.split("."), _value(value))
    return config_of(fields)


def config_of(fields: Mapping[str, Any]) -> Config:
    """The config these fields make; raises UsageError as `load_config` does."""
    try:
        return Config.model_validate(fields)
    except ValidationError as error:
        raise UsageError(_explain(error)) from error


def _put(fields: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        inner = fields.setdefault(key, {})
        if not isinstance(inner, dict):
            raise UsageError(f"`{'.'.join(keys)}`: `{key}` is a value, not a section.")
        fields = inner
    fields[keys[-1]] = value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors():
        where = [str(part) for part in item["loc"]]
        if item["type"] == "extra_forbidden":
            near = get_close_matches(where[-1], _known(where[:-1]), n=1)
            lines.append(f"unknown key `{'.'.join(where)}`" + (f"; did you mean `{near[0]}`?" if near else "."))
        else:
            lines.append(f"`{'.'.join(where)}`: {item['msg'].lower()} (got {item.get('input')!r}).")
    return "Config: " + " ".join(lines)


def _known(where: list[str]) -> list[str]:
    section: type[BaseModel] = Config
    for key in where:
        inner = section.model_fields[key].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        section = inner
    return list(section.model_fields)
