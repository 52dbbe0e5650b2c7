"""Implement `flywheel schedule`: schedules of deployments on the configured Prefect server, or that of `flywheel
up`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.options import AsJson, ConfigFile, Overrides, print_json, print_result
from schemas.failure import UsageError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

Name = Annotated[str, typer.Argument(metavar="NAME", help="A deployment, such as flywheel, retrain or collect.")]


@dataclass(frozen=True, slots=True)
class When:
    """One schedule, in words."""

    when: str
    on: bool


@dataclass(frozen=True, slots=True)
class Deployed:
    """A deployment in a listing."""

    name: str
    schedules: list[When]
    parameters: dict[str, Any]
    lake_id: str | None
    lake: str | None


def list_(as_json: AsJson = False) -> None:
    """Show every deployment with its schedule, and whether the schedule is on."""
    from apps.schedule.automations import connected
    from apps.schedule.deployments import deployments, in_words, lake_of

    with connected() as client:
        rows = [
            Deployed(
                name,
                [When(in_words(one.schedule), one.active) for one in there.schedules],
                there.parameters,
                *(lake_of(there) or (None, None)),
            )
            for name, there in deployments(client).items()
        ]
    print_result(as_json, rows, lambda: _show(rows))


def set_(
    name: Name,
    cron: Annotated[str | None, typer.Option(metavar='"0 2 * * *"', help="Cron expression.")] = None,
    every: Annotated[str | None, typer.Option(metavar="6h", help="Interval, such as 30m, 6h or 1d.")] = None,
    timezone: Annotated[str, typer.Option(help="Time zone of the cron expression.")] = "UTC",
    as_json: AsJson = False,
) -> None:
    """Give a deployment another schedule, and switch it on."""
    from apps.schedule import deployments
    from apps.schedule.automations import connected

    schedule = deployments.schedule_of(cron, every, timezone)
    with connected() as client:
        _require_project(client)
        deployments.set_schedule(client, name, schedule)
    _outcome(name, When(deployments.in_words(schedule), True), as_json)


def on(name: Name, as_json: AsJson = False) -> None:
    """Switch a deployment's schedule on."""
    _switch(name, True, as_json)


def off(name: Name, as_json: AsJson = False) -> None:
    """Switch a deployment's schedule off."""
    _switch(name, False, as_json)


def run(
    name: Name,
    parameters: Annotated[
        list[str] | None, typer.Option("--param", "-p", metavar="NAME=VALUE", help="Parameter, such as iterations=3.")
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Run a deployment now, on the server's worker; the command does not wait for it."""
    from apps.schedule.automations import connected, page_of
    from apps.schedule.deployments import deployment, run_now

    given = _parameters(parameters or [])
    with connected() as client:
        _require_project(client)
        there = deployment(client, name)
        if overrides:
            given["overrides"] = [*there.parameters.get("overrides", []), *overrides]
        _require_config({**there.parameters, **given}, (there.job_variables or {}).get("working_dir"))
        made = run_now(client, name, given)
        page = page_of(made)
    print_result(
        as_json,
        {"name": name, "flow_run": str(made), "page": page},
        f"{name} begins as soon as a worker is free: {page}",
    )


def deploy(
    overrides: Overrides = None,
    config: ConfigFile = None,
    pool: Annotated[str, typer.Option(help="Work pool; created as a process pool if it does not exist.")] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Replace deployments of another lake.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create or update all deployments on the server, without `flywheel up`; existing schedules stay."""
    from apps.options import config_or_last, resolve
    from apps.schedule.automations import connected
    from apps.schedule.deployments import POOL, deploy, place_of
    from storage.lake import Lake

    config = config_or_last(config)
    lake = resolve(config, overrides).lake
    with connected() as client:
        names = deploy(client, place_of(config, overrides or (), Lake.open(lake)), pool or POOL, replace)
    print_result(
        as_json, {"deployed": names, "pool": pool or POOL}, f"deployed to pool {pool or POOL}: {', '.join(names)}"
    )


def automations(as_json: AsJson = False) -> None:
    """Create the server's automations: retrain on enough new data, and end runs whose process died."""
    from apps.schedule import automations
    from apps.schedule.automations import connected

    with connected() as client:
        made = automations.put(client)
    if as_json:
        print_json({"automations": made})
    else:
        typer.echo("\n".join(made))
        typer.echo("`flywheel schedule on watch` lets it look for new data.")


def notify(
    block: Annotated[
        str,
        typer.Argument(metavar="TYPE/NAME", help="A notification block of the server, such as slack-webhook/alerts."),
    ],
    as_json: AsJson = False,
) -> None:
    """Send a message when the quality gate refuses data, a run fails or dies, or a policy is promoted."""
    from apps.schedule import automations
    from apps.schedule.automations import connected

    with connected() as client:
        _require_project(client)
        made = automations.notify(client, block)
    print_result(as_json, {"automations": made}, "\n".join(made))


def _require_config(parameters: dict[str, Any], folder: str | None) -> None:
    """Raises the error that a run of these parameters would, if its config is on this machine.

    Args:
        parameters: all of its parameters.
        folder: the folder that it works in, if known.
    """
    from schemas.config import load_config
    from schemas.config.profiles import OWN, config_file

    named, overrides = parameters.get("config") or "", parameters.get("overrides") or []
    if not isinstance(named, str) or not isinstance(overrides, list):
        return  # Prefect's own check names the parameter
    at = Path(folder or ".") / (named or OWN)
    if not at.is_file() and named:
        try:
            at = config_file(named)
        except UsageError:
            return  # a file of the machine that it works on
    load_config(at if at.is_file() else None, [one for one in overrides if isinstance(one, str)])


def _require_project(client: "SyncPrefectClient") -> None:
    """Raises UsageError if the server's deployments are another project's."""
    from apps.options import resolve
    from apps.schedule.deployments import require_project

    require_project(client, lambda: resolve(None, None).lake)


def _switch(name: str, active: bool, as_json: bool) -> None:
    from apps.schedule.automations import connected
    from apps.schedule.deployments import switch

    with connected() as client:
        _require_project(client)
        when = switch(client, name, active)
    _outcome(name, When(when, active), as_json)


def _outcome(name: str, now: When, as_json: bool) -> None:
    print_result(
        as_json, {"name": name, "when": now.when, "on": now.on}, f"{name}: {now.when}, {'on' if now.on else 'off'}"
    )


def _parameters(given: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise UsageError(f"`--param {one}` is not of the form NAME=VALUE.", "Write, for example, -p iterations=3.")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def _show(rows: list[Deployed]) -> None:
    from rich.text import Text

    from tasks.running.console import make_table, out

    table = make_table("<deployment", "<when", "<")
    for row in rows:
        for one in row.schedules or [When("only when asked", False)]:
            table.add_row(row.name, one.when, Text("on", "green") if one.on else "off")
    for lake_id, lake in {(row.lake_id, row.lake) for row in rows if row.lake_id}:
        out().print(f"flywheel.lake.{lake_id} at {lake}", markup=False, soft_wrap=True, highlight=False)
    out().print(table if rows else "Nothing is deployed: `flywheel up` and `flywheel schedule deploy` do that.")


VERBS = (list_, set_, on, off, run, deploy, automations, notify)
