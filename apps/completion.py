"""Complete config keys, policies, tasks and config files in a shell.

A shell waits for each completion, so this module imports no heavy package. It reads the config file as TOML, the keys
from `config_keys.txt`, and the names of policies from the folders of their checkpoints. A lake on S3 has no completion.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import typer

KEYS = Path(__file__).with_name("config_keys.txt")
"""File with a config key per line, and ` a|b` after a key with a few values; `python -m apps.reference` writes it."""
PROFILES = Path(__file__).parents[1] / "configs"
OWN, LAPTOP = "flywheel.toml", "laptop"
"""As in `schemas.config.profiles`, which imports pydantic."""


def config_files(incomplete: str) -> list[str]:
    """Completes `--config`: profiles, and config files of the current folder."""
    found = sorted(path.stem for path in PROFILES.glob("*.toml")) + sorted(path.name for path in Path().glob("*.toml"))
    return _beginning(found, incomplete)


def overrides(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes `KEY=VALUE`: the key, and the value of a key with a few values.

    Bash splits a word at `=`; other shells do not.
    """
    keys, before = _keys(), [word for word in _words(ctx) if word != "="]
    key, equals, value = incomplete.rpartition("=")
    if equals:
        return [f"{key}={one}" for one in _beginning(keys.get(key, ()), value)]
    if before and before[-1] in keys:
        return _beginning(keys[before[-1]], incomplete)
    return [f"{key}=" for key in _beginning(keys, incomplete)]


def policies(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes a policy: `champion`, `explorer` and the versions with a checkpoint in the config's lake."""
    checkpoints = Path(_lake(ctx)) / "blobs" / "checkpoints"
    versions = sorted(path.name for path in checkpoints.iterdir() if path.is_dir()) if checkpoints.is_dir() else []
    return _beginning(["champion", "explorer", *versions], incomplete)


def policies_or_keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes a policy, or `KEY=VALUE` behind the policies."""
    return policies(ctx, incomplete) or overrides(ctx, incomplete)


def tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes the last task of `A,B,C` with the tasks of the config's suite."""
    above, comma, last = incomplete.rpartition(",")
    suite = _config(ctx).get("suite", {})
    named = [task for key in ("tasks", "held_out", "practice") for task in suite.get(key, ())]
    return [f"{above}{comma}{task}" for task in _beginning(dict.fromkeys(named), last)]


def _beginning(words: Iterable[str], start: str) -> list[str]:
    return [word for word in words if word.startswith(start)]


def _keys() -> dict[str, list[str]]:
    """Returns the values of each config key; an empty list for a key without a few values."""
    return {key: values.split("|") if values else [] for key, values in map(_line, KEYS.read_text().splitlines())}


def _line(line: str) -> tuple[str, str]:
    key, _, values = line.partition(" ")
    return key, values


def _words(ctx: typer.Context) -> list[str]:
    """Returns the words of a command that are neither options nor their values.

    Click leaves them in `ctx.args` while the last option has no value.
    """
    given = [value for value in ctx.params.values() if isinstance(value, list | tuple)]
    return [word for value in (*given, ctx.args) for word in cast(list[str], value)]


def _lake(ctx: typer.Context) -> str:
    """Returns the address of a command's lake."""
    given = re.findall(r"(?<!\S)lake\.uri ?= ?(\S+)", " ".join(_words(ctx)))
    return [_config(ctx).get("lake", {}).get("uri", "lake"), *given][-1]


def _config(ctx: typer.Context) -> Mapping[str, Any]:
    """Reads the config file of a command; empty if there is no valid file."""
    named = Path(ctx.params.get("config") or (OWN if Path(OWN).is_file() else LAPTOP))
    file = named if named.is_file() else PROFILES / f"{named.stem}.toml"
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except (OSError, ValueError):
        return {}
