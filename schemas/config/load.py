"""Reads a config: a TOML file, then variables `FLYWHEEL__SECTION__KEY`, then overrides `section.key=value`."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from schemas.config.profiles import read_toml
from schemas.config.section import is_section
from schemas.config.sections import Config
from schemas.failure import UsageError
from schemas.problem import explain, fix, keys_of

PREFIX = "FLYWHEEL__"
RENAMED: dict[str, str] = {
    "filter.options.rules.max_repeats": "filter.options.loops.max_repeats",
    "filter.options.rules.max_phrases": "filter.options.thoughts.max_phrases",
    "environment.kind": "a section of its own: 'environments={\"fake\":{}}' in place of environment.kind=fake",
    "environment.browser": "environments.miniwob.browser",
    "environment.browsers": "environments.miniwob.browsers (environments.fake has sandboxes alone)",
    "environment.pages": "environments.miniwob.pages (environments.fake.sandboxes)",
    "environment.step_timeout_s": "environments.miniwob.step_timeout_s",
    "judge.url": "judge.options.url",
    "judge.model": "judge.options.model",
    "judge.timeout_s": "judge.options.timeout_s",
}
"""Refused old keys, each with the new dotted key or a sentence about the replacement."""


def load_config(
    path: str | Path | None = None, overrides: Iterable[str] = (), environ: Mapping[str, str] | None = None
) -> Config:
    """Resolves the config of a file or profile; of the current folder if neither is given (`schemas.config.profiles`).

    Raises:
        UsageError: the file is missing or broken, a key is unknown, or a value has the wrong type. The message has the
            field and the fix.
    """
    fields = read_toml(None if path is None else Path(path))
    for name, value in sorted((os.environ if environ is None else environ).items()):
        if name.startswith(PREFIX[:-1]) and "__" in name and not name.startswith(PREFIX):
            meant = PREFIX + name.removeprefix(PREFIX[:-1])
            raise UsageError(f"`{name}` is set, and nothing reads it.", f"Write {meant}, or unset it.")
        if name.startswith(PREFIX):
            _put(fields, name[len(PREFIX) :].lower().split("__"), _value(value), name)
    overrides = tuple(overrides)
    try:
        for override in overrides:
            _override(fields, override)
        return config_of(fields)
    except UsageError as error:
        _blame_quotes(overrides, error)
        raise


def _override(fields: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not all(key.split(".")):
        raise UsageError(f"`{override}` is not of the form section.key=value.", "Write, for example, train.steps=100.")
    _put(fields, key.split("."), _value(value), key)


def _blame_quotes(overrides: Iterable[str], error: UsageError) -> None:
    """Raises UsageError for an override that is not valid JSON because a shell removed its quotes."""
    for override in overrides:
        key, _, value = override.partition("=")
        if value.startswith(("[", "{")) and isinstance(_value(value), str) and f"`{key}`" in error.problem:
            hint = "Put single quotes around the whole override, such as 'suite.tasks=[\"click-test\"]'."
            raise UsageError(f"`{key}`: {value} is not JSON.", hint) from error


def config_of(fields: Mapping[str, Any]) -> Config:
    """Makes a config from its fields. Raises the errors of `load_config`."""
    refuse_renamed(fields, RENAMED)
    try:
        return Config.model_validate(fields)
    except ValidationError as error:
        raise UsageError(f"Config: {explain(error, Config)}", fix(error, Config)) from error


def _put(fields: dict[str, Any], keys: list[str], value: Any, source: str) -> None:
    """Sets a value in nested fields. `source` is the user's text, for messages."""
    if (known := keys_of(Config, keys)) and not is_section(value):
        raise UsageError(
            f"`{source}` is a section, not a value (got {value!r}).",
            f"Set a key of it, such as `{'.'.join([*keys, known[0]])}`.",
        )
    for key in keys[:-1]:
        inner = fields.setdefault(key, {})
        if not is_section(inner):
            raise UsageError(f"`{source}`: `{key}` is a value, not a section.")
        fields = inner
    fields[keys[-1]] = value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def refuse_renamed(fields: Mapping[str, Any], renamed: Mapping[str, str]) -> None:
    """Raises UsageError for old keys. The message has their new names.

    Args:
        fields: fields of a config.
        renamed: new dotted key, or a sentence about the replacement, by old dotted key.
    """
    found = {old: new for old, new in renamed.items() if _holds(fields, old.split("."))}
    if found:
        lines = (f"`{old}` is now {new if ' ' in new else f'`{new}`'}" for old, new in found.items())
        raise UsageError(f"Config: {'; '.join(lines)}.", "Write the new key in place of the old one.")


def _holds(fields: Any, keys: list[str]) -> bool:
    for key in keys:
        if not is_section(fields) or key not in fields:
            return False
        fields = fields[key]
    return True


def modern(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a resolved config of an earlier schema version to the current keys. A current config does not change."""
    config = deepcopy(dict(fields))
    if (old := config.pop("environment", None)) is not None:
        config["environments"] = {old["kind"]: _environment(old)}
    if "rules" in (gates := config.get("filter", {}).get("gates", ())):
        config["filter"] = _filter(config["filter"], gates)
    judge = config.get("judge", {})
    if "url" in judge:
        endpoint = {name: judge.pop(name) for name in ("url", "model", "timeout_s")}
        judge["options"] = endpoint if judge["kind"] == "endpoint" else {}
    return config


def _environment(old: Mapping[str, Any]) -> dict[str, Any]:
    limits = {"start_timeout_s": old["step_timeout_s"], "step_timeout_s": old["step_timeout_s"]}
    if old["kind"] == "fake":
        return {**limits, "sandboxes": old["browsers"] * old["pages"]}
    return {**limits, **{key: old[key] for key in ("browser", "browsers", "pages")}}


def _filter(old: Mapping[str, Any], gates: Sequence[str]) -> dict[str, Any]:
    """Replaces the gate `rules` of schema version 2 by three gates with the same effect."""
    at = gates.index("rules")
    options = dict(old.get("options", {}))
    rules = options.pop("rules", {})
    for name, key in (("loops", "max_repeats"), ("thoughts", "max_phrases")):
        if key in rules:
            options[name] = {key: rules[key]}
    return {**old, "gates": [*gates[:at], "actions", "thoughts", "loops", *gates[at + 1 :]], "options": options}
