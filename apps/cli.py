"""The `flywheel` command: its verbs, and how errors reach a person."""

import atexit
import os
import signal
import sys

import typer

from apps.environment import settle
from apps.verbs import GROUPS, VERBS
from schemas.failure import FlywheelError

app = typer.Typer(
    help="A data flywheel for GUI agents: play, judge, train, measure, promote, and again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in VERBS:
    app.command()(verb)
for name, (about, verbs) in GROUPS.items():
    group = typer.Typer(help=about, no_args_is_help=True)
    for verb in verbs:
        group.command()(verb)
    app.add_typer(group, name=name)


def main() -> None:
    """The console entry: 0 ok, 1 error, 2 usage, 3 gate refused."""
    atexit.register(_last_word)
    # an orderly end takes Prefect's temporary server with it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    settle()
    try:
        app()
    except FlywheelError as error:
        sys.stderr.write(f"flywheel: {' '.join(str(error).split())}\n")
        sys.exit(error.exit_code)


def _last_word() -> None:
    """Closes stderr at the very end: DuckDB's bindings list what is still alive there, which helps nobody."""
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


if __name__ == "__main__":
    main()
