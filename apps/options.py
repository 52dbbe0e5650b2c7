"""Define the options that many verbs share, and resolve them to a config."""

import getpass
import inspect
import json
import re
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps import completion
from common import log
from common.text import STEERING, harmless
from schemas.failure import UsageError

if TYPE_CHECKING:
    from schemas.config import Config
    from storage.lake import Lake

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Config file or profile; else flywheel.toml here, else the last run's, else `laptop`.",
        autocompletion=completion.config_files,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Config keys, such as train.steps=100.",
        autocompletion=completion.overrides,
    ),
]
Tasks = Annotated[
    str | None,
    typer.Option(
        "--tasks",
        metavar="A,B,C",
        help="Task names; the suite if not given.",
        autocompletion=completion.tasks,
    ),
]
LicenseName = Annotated[
    str, typer.Option("--license", metavar="ID", help="Licence for the card, as on the Hub, such as cc-by-4.0.")
]
IdsFile = Annotated[
    Path | None,
    typer.Option("--ids", metavar="FILE", help="Also the ids in a file, one a line, or - for standard input."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON alone on stdout.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from tasks.shared.version import version

        typer.echo(f"flywheel {version()}")
        raise typer.Exit


Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print only results, warnings and errors, and no progress.")]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Print progress every ten seconds, and messages of libraries.")
]


def with_volume(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options `-q` and `-v` to a verb; they hold for the process and its children."""

    @wraps(verb)
    def called(*args: Any, quiet: bool = False, verbose: bool = False, **named: Any) -> Any:
        if quiet and verbose:
            raise UsageError("`--quiet` and `--verbose` are both given.", "Give one of them.")
        if quiet or verbose:
            log.set_volume("quiet" if quiet else "verbose")
        return verb(*args, **named)

    own = inspect.signature(verb)
    options = {"quiet": Quiet, "verbose": Verbose}
    keyword, false = inspect.Parameter.KEYWORD_ONLY, False
    added = [inspect.Parameter(name, keyword, default=false, annotation=one) for name, one in options.items()]
    called.__signature__ = own.replace(parameters=[*own.parameters.values(), *added])  # type: ignore[attr-defined]
    called.__annotations__ = {**verb.__annotations__, **options}
    return called


def _log_as_json(wanted: bool) -> None:
    if wanted:
        log.switch_on()


def everywhere(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    __: Annotated[
        bool, typer.Option("--log-json", callback=_log_as_json, help="Write JSON messages on stderr, one per line.")
    ] = False,
) -> None:
    """Accepts options before every verb."""


def config_or_last(file: Path | None) -> Path | None:
    """Returns the config of a command: the named one, else the one of the folder's last run, which a note names; None
    for the default."""
    from apps.last_config import last_config

    if file is not None or (last := last_config()) is None:
        return file
    if log.volume() != "quiet":
        print_note(f"config {last}, as in the last run here; --config names another.")
    return Path(last)


def resolve(file: Path | None, overrides: list[str] | None) -> "Config":
    """Loads the config of a command with overrides; raises the errors of `load_config`."""
    from schemas.config import load_config

    return load_config(config_or_last(file), overrides or ())


def open_lake(config: "Config") -> "Lake":
    """Opens the config's lake; raises LakeError if there is none."""
    from storage.lake import Lake

    return Lake.open(config.lake, create=False)


def print_json(value: Any, indent: int | None = 2) -> None:
    """Prints one JSON document to stdout, on one line without an indent; typed rows become objects of their fields."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=_plain)
    sys.stdout.write(STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def _plain(value: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return value.model_dump()
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return str(value)


def print_result(as_json: bool, value: Any, shown: str | Callable[[], object]) -> None:
    """Prints a result: as JSON, else as a line of text, or by calling `shown`, which prints it."""
    if as_json:
        print_json(value)
    elif isinstance(shown, str):
        print_line(shown)
    else:
        shown()


def print_line(text: str) -> None:
    """Prints one line without terminal control characters."""
    typer.echo(harmless(text))


def print_note(text: str) -> None:
    """Prints a note on stderr, without terminal control characters; JSON with `--log-json`."""
    log.write("info", harmless(text))


def sweep_exports(to: Path) -> None:
    """Removes the remains of killed exports to the same place, and reports each."""
    from common.atomic_folder import swept

    for one in swept(to):
        print_note(f"removed {one}, which an export left that was killed.")


def apart(words: list[str] | None) -> tuple[list[str], list[str]]:
    """Names, and config keys with their values."""
    given = words or []
    return [one for one in given if "=" not in one], [one for one in given if "=" in one]


def ids_of(file: Path | None) -> list[str]:
    """Reads ids, one a line, as `flywheel trajectories --ids` prints them; none without a file.

    Raises:
        UsageError: the file cannot be read.
    """
    if file is None:
        return []
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"`--ids`: {file} cannot be read: {error}.", "Name a file with an id a line, or -.") from error
    return text.split()


def user() -> str:
    """Returns the name of the user who runs the command."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        return "unknown"


def task_names(text: str | None) -> list[str] | None:
    """Parses the tasks of `a,b,c`, by template or by id such as `miniwob/a`."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("`--tasks` names no task.", "Write, for example, --tasks click-test,click-button.")
    return names


def seed_range(text: str | None) -> tuple[int, int] | None:
    """Parses the seeds of `A:B`, without B; raises UsageError for anything else."""
    return _range(text, "--seeds", "2000000:2000050")


def iteration_range(text: str | None) -> tuple[int, int] | None:
    """Parses the iterations of `A:B`, without B; imports are negative. Raises UsageError for anything else."""
    return _range(text, "--iterations", "0:3", least=None)


def _range(text: str | None, option: str, example: str, least: int | None = 0) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(-?\d{1,9}):(-?\d{1,9})", text, re.ASCII)
    first, end = (int(found[1]), int(found[2])) if found else (0, 0)
    if first >= end or (least is not None and first < least):
        raise UsageError(
            f"`{option} {text}` is not of the form A:B, from A up to and without B, with A below B.",
            f"Write, for example, {example}.",
        )
    return first, end


def numbers(text: str | None, option: str) -> list[float] | None:
    """Parses the numbers of `a,b,c`; raises UsageError for anything else."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(
            f"`{option} {text}` is not a list of numbers.", f"Write, for example, {option} 0.6,0.4."
        ) from error
