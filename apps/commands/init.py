"""Implement `flywheel init`: write the config of a new project."""

import json
from pathlib import Path
from typing import Annotated

import typer

from apps.options import AsJson, ConfigFile, Overrides, print_json, print_line
from schemas.failure import UsageError


def init(
    overrides: Overrides = None,
    config: ConfigFile = None,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The project's folder.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write flywheel.toml, which every command in its folder reads: all keys, each with its meaning."""
    from apps.commented import commented
    from schemas.config.load import load_config
    from schemas.config.profiles import LAPTOP, OWN

    file = to / OWN
    if file.exists():
        raise UsageError(
            f"There is a {file} already.", "Edit it, or name another folder with --to; nothing was written."
        )
    name = f"name={json.dumps(to.absolute().name)}"
    text = commented(load_config(config or LAPTOP, [name, *(overrides or ())]))
    try:
        to.mkdir(parents=True, exist_ok=True)
        with file.open("x") as made:
            made.write(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.", "Name another folder with --to.") from error
    if as_json:
        print_json({"config": str(file.absolute())})
    else:
        print_line(f"{file} is written. Next: flywheel doctor, flywheel run --dry-run, flywheel run")
