"""Implement `flywheel quality`: show the gate's results, run the gate again, and override a refusal."""

import getpass
from typing import Annotated

import typer

from apps.options import AsJson, ConfigFile, Overrides, open_lake, print_json, print_result, resolve
from schemas.failure import UsageError

Iteration = Annotated[int | None, typer.Option("--iteration", help="Iteration; an import's is negative.")]
Number = Annotated[int, typer.Argument(metavar="ITERATION", help="Iteration; an import's is negative, after `--`.")]
MOST = 500
"""Maximum characters of a reason."""


def show(
    overrides: Overrides = None,
    config: ConfigFile = None,
    iteration: Iteration = None,
    page: Annotated[bool, typer.Option("--page", help="Write one HTML page and print its path.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the quality gate's results by iteration, or all of one, and the rows that broke an expectation."""
    from apps.quality.gather import quality_of
    from apps.quality.page import print_quality, write_page

    resolved = resolve(config, overrides)
    lake = open_lake(resolved)
    found = quality_of(lake, iteration)
    if page:
        written = write_page(resolved, lake, found)
        print_result(as_json, {"page": str(written), "bytes": written.stat().st_size}, str(written))
    elif as_json:
        print_json(found)
    else:
        print_quality(found)


def check(
    overrides: Overrides = None, config: ConfigFile = None, iteration: Iteration = None, as_json: AsJson = False
) -> None:
    """Check every table of an iteration again, by default the latest; exit status 3 if the gate refuses it."""
    from apps.calling import call
    from tasks.quality import Passed

    resolved = resolve(config, overrides)
    open_lake(resolved)
    done: Passed = call("flows.data.quality", resolved, iteration)
    print_result(as_json, done.stored, str(done))


def override(
    iteration: Number,
    reason: Annotated[str, typer.Option("--reason", help="Reason for the override, which is stored.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    by: Annotated[str | None, typer.Option("--by", help="Your name; the user's name if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Override the critical failures of an iteration: it continues, and the reason is stored and shown."""
    from tasks.overrides import override_failures

    if len(reason) > MOST:
        raise UsageError(f"`--reason` has {len(reason)} characters.", f"Write 1 to {MOST}.")
    written = override_failures(open_lake(resolve(config, overrides)), iteration, reason, by or getpass.getuser())
    if as_json:
        print_json([row.model_dump(mode="json") for row in written])
    else:
        for row in written:
            typer.echo(f"{row.table}: {row.expectation}: overridden by {row.person}")
        typer.echo("Run the stopped command again; it continues.")


VERBS = (show, check, override)
