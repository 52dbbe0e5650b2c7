"""Implement the commands of sandboxes and environments.

`flywheel sandboxes` lists leases, `flywheel environments` lists and installs environments, and `flywheel
serve-sandboxes` and `flywheel serve-osworld` serve our sandboxes to other trainers and policies.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps.options import (
    AsJson,
    ConfigFile,
    Overrides,
    Tasks,
    open_lake,
    print_line,
    print_result,
    resolve,
    task_names,
)

if TYPE_CHECKING:
    from tasks.preflight.checks import Available
    from tasks.running.run_status import RunStatus


def list_sandboxes(overrides: Overrides = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show the sandboxes that runs on the lake currently lease."""
    from tasks.running.run_status import run_statuses

    runs = run_statuses(open_lake(resolve(config, overrides)))
    print_result(
        as_json,
        {"sandboxes": [{**_run(run), **one.model_dump()} for run in runs for one in run.sandboxes]},
        lambda: _show_leased(runs),
    )


def _run(run: "RunStatus") -> dict[str, object]:
    return {"run_id": run.run_id, "host": run.host, "process": run.process, "heard": run.heard}


def _show_leased(runs: "list[RunStatus]") -> None:
    from common.text import counted, lasting
    from tasks.running.console import make_table, out
    from tasks.shared.trajectories import SHORT_ID

    table = make_table("lease", "<kind", "<task", "seed", "<trajectory", "age", "silent", "host MB", "own MB")
    for run in runs:
        for one in run.sandboxes:
            age, silent = lasting(max(0.0, run.heard - one.since)), lasting(one.silent_s)
            memory = ["-" if mb is None else f"{mb:.0f}" for mb in (one.host_mb, one.own_mb)]
            trajectory = one.trajectory_id[:SHORT_ID] or "-"
            times = (str(one.seed), trajectory, age, silent)
            table.add_row(str(one.lease), one.kind or "-", one.task_id, *times, *memory)
    console = out()
    if table.row_count:
        console.print(table)
    count = counted(table.row_count, "sandbox is", "sandboxes are")
    console.print(f"{count} leased by {counted(len(runs), 'run')} on this lake")


def show(overrides: Overrides = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show the environments of the config and the built-in kinds, with the requirements that this machine lacks."""
    from dataclasses import asdict

    from tasks.preflight.checks import available

    found = available(resolve(config, overrides))
    print_result(as_json, {"environments": [asdict(one) for one in found]}, lambda: _show_available(found))


def add(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Environment to install: mobilegym, androidworld, cua-gym-hub, browsergym, gymnasium or cube.",
        ),
    ],
    overrides: Overrides = None,
    config: ConfigFile = None,
    snapshot: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Your checkout of MobileGym, AndroidWorld or CUA-Gym-Hub."),
    ] = None,
    apps: Annotated[
        str | None, typer.Option("--apps", metavar="A,B,C", help="Applications to install; the config's if not given.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Folder for a worker's Python or a phone; else the work folder."),
    ] = None,
    python: Annotated[
        str | None, typer.Option("--python", metavar="PATH", help="Python to build it with; searched for if not given.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Install an environment: phone tasks or the config's web applications from a checkout, or a worker's Python."""
    from dataclasses import asdict

    from apps.process import ANEW, Interrupts
    from environments.webapp.build import build
    from environments.webapp.environment import webapps_of
    from environments.workers.build import ANDROIDWORLD, MOBILEGYM, MODULES
    from schemas.failure import UsageError

    Interrupts.kept = ANEW
    if name in MODULES:
        _refuse(name, {"--from": snapshot, "--apps": apps})
        _add_worker(name, folder, python, as_json)
        return
    if name in (MOBILEGYM.name, ANDROIDWORLD.name):
        _refuse(name, {"--apps": apps})
        _add_phone(name, snapshot, folder, python, as_json)
        return
    if name != "cua-gym-hub":
        hint = (
            "There are mobilegym (docs/mobilegym.md), androidworld (docs/androidworld.md), "
            f"cua-gym-hub (docs/webapps.md), {', '.join(MODULES)} (docs/sandboxes.md)."
        )
        raise UsageError(f"There is no {name!r} to add.", hint)
    _refuse(name, {"--dir": folder, "--python": python})
    if snapshot is None:
        raise UsageError("`--from` is not given.", "Name a checkout of CUA-Gym-Hub: --from DIR.")
    environment = webapps_of(resolve(config, overrides))
    wanted = _names(apps) or environment.served
    built = build(
        snapshot.expanduser().absolute(), environment.folder, wanted, (lambda line: None) if as_json else print_line
    )
    print_result(
        as_json,
        {"folder": str(environment.folder), "applications": [asdict(one) for one in built]},
        f"they are in {environment.folder}",
    )


def _add_worker(name: str, folder: Path | None, python: str | None, as_json: bool) -> None:
    from dataclasses import asdict

    from common.process import home
    from environments.workers.build import MODULES, add, python_in

    to = folder.expanduser().absolute() if folder else home() / "workers" / name
    added = add(MODULES[name], to, python, (lambda line: None) if as_json else print_line)
    print_result(
        as_json,
        {**asdict(added), "path": str(python_in(to))},
        f"its Python is {python_in(to)}" + ("; name it in `environments.NAME.python`" if folder else ""),
    )


def _add_phone(name: str, snapshot: Path | None, folder: Path | None, python: str | None, as_json: bool) -> None:
    from dataclasses import asdict

    from common.process import home
    from environments.androidworld import build as androidworld
    from environments.mobilegym import build as mobilegym
    from environments.workers.build import ANDROIDWORLD, MOBILEGYM, add, python_in
    from schemas.failure import UsageError

    module, phone, title = (
        (MOBILEGYM, mobilegym, "MobileGym") if name == MOBILEGYM.name else (ANDROIDWORLD, androidworld, "AndroidWorld")
    )
    if snapshot is None:
        raise UsageError("`--from` is not given.", f"Name a checkout of {title}: --from DIR.")
    log = (lambda line: None) if as_json else print_line
    to = folder.expanduser().absolute() if folder else home() / name
    venv = home() / "workers" / name
    phone.require_checkout(snapshot.expanduser().absolute())
    add(module, venv, python, log)
    built = phone.build(snapshot.expanduser().absolute(), to, python_in(venv), log)
    print_result(
        as_json,
        {**asdict(built), "folder": str(to), "config": str(to / phone.SUITE)},
        f"it is in {to}"
        + ("; name it in `environments.NAME.folder`" if folder else "")
        + f"; try --config {to / phone.SUITE}",
    )


def _refuse(name: str, given: dict[str, object]) -> None:
    """Raises UsageError for an option that has no use with the added environment."""
    from schemas.failure import UsageError

    for option, value in given.items():
        if value is not None:
            raise UsageError(f"`{option}` has no effect on {name}.", "Leave it out.")


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _show_available(found: "list[Available]") -> None:
    from rich.text import Text

    from tasks.running.console import make_table, out

    table = make_table("<environment", "<kind", "tasks", "sandboxes", "<")
    for one in found:
        word = Text("ready", "green") if one.ready else Text(one.lacks, "red")
        table.add_row(
            one.name if one.configured else "-", one.kind, _count_text(one.tasks), _count_text(one.sandboxes), word
        )
    out().print(table)


def _count_text(number: int | None) -> str:
    return "-" if number is None else str(number)


def serve_sandboxes(
    overrides: Overrides = None,
    config: ConfigFile = None,
    host: Annotated[str, typer.Option(help="Listening address; any but this machine's needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free port.")] = 8000,
    token_variable: Annotated[
        str, typer.Option(metavar="NAME", help="Environment variable with the token.")
    ] = "FLYWHEEL_SANDBOXES_TOKEN",
    tasks: Tasks = None,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Also serve held-out tasks and seeds, to evaluate.")
    ] = False,
    idle_s: Annotated[
        float, typer.Option(min=1.0, help="Seconds without a message after which a session ends.")
    ] = 900.0,
) -> None:
    """Serve sandboxes over OpenEnv's protocol to trainers and agents elsewhere; each session leases one."""
    from apps.sandboxes.serve import serve_sandboxes as answer

    answer(resolve(config, overrides), host, port, token_variable, task_names(tasks), held_out, idle_s)


def serve_osworld(
    overrides: Overrides = None,
    config: ConfigFile = None,
    host: Annotated[str, typer.Option(help="Listening address; any but this machine's needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free port.")] = 5000,
    token_variable: Annotated[
        str, typer.Option(metavar="NAME", help="Environment variable with the token.")
    ] = "FLYWHEEL_OSWORLD_TOKEN",
    open_: Annotated[
        list[str] | None, typer.Option("--open", metavar="COMMAND", help="Program to open; may be repeated.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Desktop task to start with.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of that task.")] = 0,
) -> None:
    """Serve a desktop on OSWorld's interface. Every client that can reach it can run any command on that desktop."""
    from apps.osworld.serve import serve_osworld as answer

    answer(resolve(config, overrides), host, port, token_variable, open_ or (), task, seed)


list_sandboxes.__name__ = "sandboxes"
VERBS = (list_sandboxes, serve_sandboxes, serve_osworld)
ENVIRONMENT_VERBS = (show, add)
