"""The verbs of versions: back to an earlier champion, what changed between two versions, a trajectory forgotten."""

from typing import Annotated

import typer

from apps.options import AsJson, ConfigFile, print_json, resolve
from schemas.failure import UsageError


def rollback(
    named: Annotated[
        list[str] | None, typer.Argument(metavar="[VERSION] [KEY=VALUE]...", help="An earlier champion, then keys.")
    ] = None,
    config: ConfigFile = None,
    reason: Annotated[str, typer.Option(help="Why; kept with the record.")] = "",
    as_json: AsJson = False,
) -> None:
    """Make the champion before this one, or VERSION, reign again; what is trained next begins from it."""
    from apps.commands.policies import roll_back_to
    from apps.lakes import open_lake

    versions, overrides = apart(named)
    if len(versions) > 1:
        raise UsageError(f"`rollback` takes one version, not {', '.join(versions)}.", "Name one, or none.")
    done = roll_back_to(open_lake(resolve(config, overrides)), versions[0] if versions else None, reason)
    if as_json:
        print_json(done)
    else:
        typer.echo(f"{done['champion']} reigns again; {done['against']} does no more: {done['reason']}")


def apart(words: list[str] | None) -> tuple[list[str], list[str]]:
    """Names, and config keys with their values."""
    given = words or []
    return [one for one in given if "=" not in one], [one for one in given if "=" in one]


VERBS = (rollback,)
