"""Assemble the `flywheel` command: its verbs, and the messages of errors and signals."""

import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from apps.environment import settle
from apps.interrupts import Interrupts, heeded, leave
from common.text import harmless
from schemas.failure import EXIT_ERROR, FlywheelError, of_the_disk
from tasks.running import log

if TYPE_CHECKING:
    import typer


def make_app() -> "typer.Typer":
    """The command with all its verbs."""
    import typer

    from apps.commands.verbs import GROUPS, VERBS
    from apps.groups import ShownByDefault
    from apps.options import everywhere

    app = typer.Typer(
        help="A data flywheel for GUI agents: roll out, judge, train, measure, promote, and again.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # boxes would cut words on a narrow terminal
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(everywhere)
    for verb in VERBS:
        app.command()(verb)
    for name, (about, verbs) in GROUPS.items():
        group = typer.Typer(help=about, no_args_is_help=True, cls=ShownByDefault)
        for verb in verbs:
            group.command(verb.__name__.rstrip("_").replace("_", "-"))(verb)  # `list_` is `list`
        app.add_typer(group, name=name)
    return app


def complaint(error: FlywheelError) -> str:
    """The message that a person, or a program with `--log-json`, gets: one line."""
    if log.as_json():
        fields = {"error": type(error).__name__, "hint": error.hint, "exit_code": error.exit_code}
        return log.line("error", error.problem, fields)
    return f"flywheel: {harmless(' '.join(str(error).split()))}"


def main() -> None:
    """The console entry: 0 ok, 1 error, 2 usage, 3 gate refused, 4 paused, 130 Ctrl-C, 143 SIGTERM."""
    loaded: list[typer.Typer] = []

    def load() -> None:
        settle()
        loaded.append(make_app())

    code = _ended(load)  # signals are not heeded yet: libraries that are being loaded abort at an exception
    if loaded:
        with heeded():
            code = _ended(loaded[0])
    leave(code)


def _ended(do: Callable[[], object]) -> Any:
    """Calls `do` and prints the hint of an error that the user can fix; returns the exit status, as `sys.exit` takes
    it."""
    try:
        do()
    except FlywheelError as error:
        return _print_error(error)
    except SystemExit as end:
        return end.code
    except Exception as error:
        if isinstance(error, OSError) and (explanation := of_the_disk(error)):
            return _print_error(explanation)
        traceback.print_exc()
        sys.stderr.write(f"flywheel: internal error: please report the traceback above; {Interrupts.kept}.\n")
        return EXIT_ERROR
    return 0


def _print_error(error: FlywheelError) -> int:
    """An error in one line; the exit status."""
    sys.stderr.write(complaint(error) + "\n")
    return error.exit_code


if __name__ == "__main__":
    main()
