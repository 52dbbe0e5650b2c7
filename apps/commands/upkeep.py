"""Implement the verbs that set up, check and maintain a project and its lake, and pause its iterations."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps.options import AsJson, ConfigFile, Overrides, open_lake, print_json, print_line, print_result, resolve, user
from schemas.failure import UsageError

if TYPE_CHECKING:
    from schemas.failure import CheckReport


def init(
    overrides: Overrides = None,
    config: ConfigFile = None,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The project's folder.")] = Path(),
    full: Annotated[bool, typer.Option("--full", help="Write every key with its meaning.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write flywheel.toml, the config of commands in its folder: the keys that are set, or all with --full.

    Values that `flywheel run` would refuse are refused, and nothing is written.
    """
    from apps.commented import commented
    from schemas.config.load import load_config
    from schemas.config.profiles import LAPTOP, OWN
    from tasks.preflight.preflight import require_values

    file = to / OWN
    if file.exists():
        raise UsageError(
            f"There is a {file} already.", "Edit it, or name another folder with --to; nothing was written."
        )
    name = f"name={json.dumps(to.absolute().name)}"
    made_of = load_config(config or LAPTOP, [name, *(overrides or ())])
    require_values(made_of)
    text = commented(made_of, full=full)
    try:
        to.mkdir(parents=True, exist_ok=True)
        with file.open("x") as made:
            made.write(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.", "Name another folder with --to.") from error
    print_result(
        as_json,
        {"config": str(file.absolute())},
        f"{file} is written. Next: flywheel doctor, flywheel run --dry-run, flywheel run",
    )


def doctor(overrides: Overrides = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Check browser, storage, versions, disk, memory and cores before a run starts."""
    from tasks.preflight.preflight import examine

    checks = examine(resolve(config, overrides))
    well = all(check.ok for check in checks)
    print_result(as_json, {"ok": well, "checks": [check.as_dict() for check in checks]}, lambda: _show_checks(checks))
    if not well:
        sys.exit(1)


def _show_checks(checks: "list[CheckReport]") -> None:
    """Prints the checks."""
    from rich.text import Text

    from tasks.running.console import out

    console = out()
    for check in checks:
        word = Text("ok  ", "green") if check.ok else Text("FAIL", "red")
        first, *others = check.detail.splitlines() or [""]
        console.print(word, Text(f"{check.name:<24} {first}"))
        for line in others:
            console.print(Text(f"{'':<29} {line}"))
        if check.hint:
            console.print(Text(f"{'':<29} {check.hint}", "dim"))


def maintain(overrides: Overrides = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Merge a lake's small files, and remove those that no pinned or recent version needs (`lake.keep_hours`)."""
    lake = open_lake(resolve(config, overrides))
    before = lake.size_bytes()
    lake.maintain()
    after = lake.size_bytes()
    print_result(
        as_json,
        {"bytes_before": before, "bytes_after": after},
        f"{before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB now",
    )


def upgrade(overrides: Overrides = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Upgrade a lake of an earlier version in place; if it is interrupted, the same command continues."""
    from storage.upgrade import upgrade as bring_up
    from tasks.running.run_status import require_idle

    made = bring_up(resolve(config, overrides).lake, (lambda step: None) if as_json else print_line, require_idle)
    if as_json:
        print_json({"steps": made})
    elif not made:
        print_line("the lake is up to date")


def pause(
    reason: Annotated[str, typer.Option("--reason", help="The reason, shown to other users.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    by: Annotated[str | None, typer.Option("--by", help="Your name; the user's name if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start no new work: runs and retrainings end before their next stage, and continue after `flywheel resume`."""
    from tasks.running.budget import pause as pause_lake

    who = by or user()
    for option, text, most in (("--reason", reason, 500), ("--by", who, 100)):
        if not text.strip() or len(text) > most:
            raise UsageError(f"`{option}` has {len(text.strip())} characters.", f"Write 1 to {most}.")
    made = pause_lake(open_lake(resolve(config, overrides)), reason, who)
    print_result(
        as_json,
        made.model_dump(mode="json"),
        f"{made.text} Running iterations end before their next stage; `flywheel resume` ends the pause.",
    )


def resume(overrides: Overrides = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """End the pause; ended runs start again, by hand or by their schedule."""
    from tasks.running.budget import resume as resume_lake

    was = resume_lake(open_lake(resolve(config, overrides)))
    print_result(as_json, {"resumed": was}, "iterations continue" if was else "iterations were not paused")
