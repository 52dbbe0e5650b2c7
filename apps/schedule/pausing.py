"""Implement `flywheel pause` and `flywheel resume`: stop and resume iterations without a waiting process."""

import getpass
from typing import Annotated

import typer

from apps.options import AsJson, ConfigFile, Overrides, print_json, resolve
from schemas.failure import UsageError


def pause(
    reason: Annotated[str, typer.Option("--reason", help="The reason, shown to other users.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    by: Annotated[str | None, typer.Option("--by", help="Who; the user's name if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start no new work: runs and retrainings end before their next stage, and continue after `flywheel resume`."""
    from apps.lakes import open_lake
    from tasks.running.pausing import pause as pause_lake

    who = by or _user()
    for option, text, most in (("--reason", reason, 500), ("--by", who, 100)):
        if not text.strip() or len(text) > most:
            raise UsageError(f"`{option}` has {len(text.strip())} characters.", f"Write 1 to {most}.")
    made = pause_lake(open_lake(resolve(config, overrides)), reason, who)
    if as_json:
        print_json(made.model_dump(mode="json"))
    else:
        typer.echo(f"{made.text} Running iterations end before their next stage; `flywheel resume` ends the pause.")


def resume(overrides: Overrides = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """End the pause; ended runs start again, by hand or by their schedule."""
    from apps.lakes import open_lake
    from tasks.running.pausing import resume as resume_lake

    was = resume_lake(open_lake(resolve(config, overrides)))
    if as_json:
        print_json({"resumed": was})
    else:
        typer.echo("iterations continue" if was else "iterations were not paused")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        return "unknown"


VERBS = (pause, resume)
