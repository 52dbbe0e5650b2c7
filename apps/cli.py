"""Assemble the `flywheel` command and start it.

From the start, a signal ends the command with the signal's status and one line instead of a traceback. So this module
first imports only built-in modules, and each verb imports its own modules when it is called.
"""

import os
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import typer


def make_app() -> "typer.Typer":
    """Makes the command with all its verbs."""
    import typer

    from apps.commands.verbs import GROUPS, LONG, VERBS, ShownByDefault
    from apps.options import everywhere, with_volume

    app = typer.Typer(
        help="A data flywheel for GUI agents: roll out, judge, train, measure, promote, and again.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # boxes would cut words on a narrow terminal
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(everywhere)
    for verb in VERBS:
        app.command()(with_volume(verb) if verb.__name__ in LONG else verb)
    for name, (about, verbs) in GROUPS.items():
        group = typer.Typer(help=about, no_args_is_help=True, cls=ShownByDefault)
        for verb in verbs:
            word = verb.__name__.rstrip("_").replace("_", "-")  # `list_` is `list`
            group.command(word)(with_volume(verb) if f"{name} {word}" in LONG else verb)
        app.add_typer(group, name=name)
    return app


def start() -> None:
    """Runs the console entry, which heeds signals from the beginning."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    main()


def main() -> None:
    """Runs the command: 0 ok, 1 error, 2 usage, 3 gate refused, 4 paused, 130 Ctrl-C, 143 SIGTERM."""
    from apps.process import ended, heeded, leave, settle

    loaded: list[typer.Typer] = []

    def load() -> None:
        settle()
        loaded.append(make_app())

    code = ended(load)  # libraries abort if an exception reaches them during their import
    if loaded:
        with heeded():
            code = ended(lambda: _call(loaded[0]))
    leave(code)


def _call(app: "typer.Typer") -> None:
    """Runs the command; if messages are JSON, Typer's errors are raised as this project's errors."""
    from common import log
    from schemas.failure import EXIT_USAGE, FlywheelError, UsageError

    if not _is_json():
        app()
        return
    from typer import TyperException

    log.switch_on()  # a usage error may occur before Typer reads the option
    try:
        status = app(standalone_mode=False)
    except TyperException as error:
        context: typer.Context | None = getattr(error, "ctx", None)
        hint = f"See `{context.command_path if context else 'flywheel'} --help`."
        kind = UsageError if error.exit_code == EXIT_USAGE else FlywheelError
        raise kind(error.format_message(), hint) from error
    sys.exit(status)


def _is_json() -> bool:
    """Whether messages on standard error are JSON (`common.log`); the option is read before Typer reads it."""
    return os.environ.get("FLYWHEEL_LOG") == "json" or "--log-json" in sys.argv[1:]


def _end(number: int, _: FrameType | None) -> NoReturn:
    text = f"ended by {signal.Signals(number).name}; nothing was begun"
    now = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    line = f'{{"time": "{now}", "level": "warning", "message": "{text}"}}' if _is_json() else f"flywheel: {text}."
    os.write(2, f"{line}\n".encode())
    os._exit(128 + number)


if __name__ == "__main__":
    start()
