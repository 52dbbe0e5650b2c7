"""The options that many verbs share, and how they become a config."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.config import Config, load_config

ConfigFile = Annotated[Path, typer.Option("--config", help="The config file.")]
Words = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Config keys, such as train.steps=100.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout and nothing else.")]

LAPTOP = Path("configs/laptop.toml")


def resolve(file: Path, words: list[str] | None) -> Config:
    """The config of a file with words over it; raises UsageError as `load_config` does."""
    return load_config(file, words or ())


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False, default=str)
    sys.stdout.write("\n")
