"""Put the deployments of `prefect.yaml` on a server, with their schedules.

Deploying again changes code, parameters and places, but never a schedule, which belongs to the user who set it. A
server has the deployments of one lake, which their tags name. Another lake's deployments are replaced only on request.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, PrefectHTTPStatusError
from prefect.utilities.callables import parameter_schema
from pydantic import ValidationError

import flows
from common.process import home
from schemas.config.form import override_pattern
from schemas.config.profiles import config_file
from schemas.config.sections import LakeConfig
from schemas.failure import FlywheelError, UsageError
from storage.address import resolve
from storage.lake import Lake
from storage.schema_marker import NAME as MARK

POOL = "flywheel"
TURNS = "turns"
"""The queue of runs that roll out or train: one at a time on all workers of the pool together."""
Schedule = CronSchedule | IntervalSchedule
NOTE = "deployed.json"
"""File in the work folder with the lakes that were deployed from this project."""
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LEAST_S = 60
OF_LAKE, AT = "flywheel.lake.", "lake "
"""Prefixes of a deployment's tags that identify its lake: the lake's id, and its address."""


@dataclass(frozen=True, slots=True)
class WorkPool:
    """The settings of deployments' runs: folder, lake and parameters."""

    folder: Path
    """Folder of a process pool, to which paths are relative."""
    lake_id: str
    lake: str
    """The lake's address."""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The parameters of every deployment: `config` and `overrides`."""


def place_of(config: Path | None, overrides: Sequence[str], lake: Lake) -> WorkPool:
    """Returns the settings for runs in this folder and on this lake, with this config and overrides."""
    named = str(config_file(config).absolute()) if config is not None else ""
    return WorkPool(Path.cwd(), lake.lake_id, lake.uri, {"config": named, "overrides": list(overrides)})


@cache
def described() -> list[dict[str, Any]]:
    """Reads the deployments of `prefect.yaml`, which is next to the packages in a checkout and in `flows` of a
    wheel."""
    folder = Path(flows.__file__).parent
    file = next(one for one in (folder / "prefect.yaml", folder.parent / "prefect.yaml") if one.is_file())
    return yaml.safe_load(file.read_text())["deployments"]


def flow_at(entrypoint: str) -> Any:
    """Import a flow by its dotted path; Prefect's own function would put the current folder first on the path."""
    module, _, name = entrypoint.rpartition(".")
    return getattr(import_module(module), name)


def deploy(client: SyncPrefectClient, place: WorkPool, pool: str = POOL, replace: bool = False) -> list[str]:
    """Puts every deployment on the server and returns their names.

    Args:
        client: client of the server.
        place: settings of the deployments' runs.
        pool: the work pool; a process pool of this name is made if there is none.
        replace: whether to replace another lake's deployments and schedules.

    Raises:
        UsageError: the server has another lake's deployments; the message names the lake and its folder.
    """
    if not replace:
        _require_ours(client, place)
    kind = _pool_kind(client, pool)
    home().mkdir(parents=True, exist_ok=True)
    (home() / NOTE).write_text(json.dumps({"lakes": sorted({*_noted(), place.lake_id})}))
    return [_deploy(client, one, place, pool, kind) for one in described()]


def deployments(client: SyncPrefectClient) -> dict[str, DeploymentResponse]:
    """Returns this project's deployments on the server, by name, in the order of `prefect.yaml`."""
    there = {name: _there(client, name) for name in names()}
    return {name: one for name, one in there.items() if one is not None}


def lake_of(there: DeploymentResponse) -> tuple[str, str] | None:
    """Returns the id and the address of a deployment's lake; None if its tags do not name it."""
    tags = {begin: one.removeprefix(begin) for begin in (OF_LAKE, AT) for one in there.tags if one.startswith(begin)}
    return (tags[OF_LAKE], tags.get(AT, "")) if OF_LAKE in tags else None


def names() -> list[str]:
    """Returns the names of all deployments, which are the names of their flows."""
    return [one["name"] for one in described()]


def deployment(client: SyncPrefectClient, name: str) -> DeploymentResponse:
    """Returns a deployment of this project; raises UsageError if it is unknown or not deployed."""
    if name not in names():
        raise UsageError(f"There is no deployment `{name}`.", f"There are: {', '.join(names())}.")
    there = _there(client, name)
    if there is None:
        raise UsageError(f"`{name}` is not deployed.", "`flywheel up` and `flywheel schedule deploy` do that.")
    return there


def require_project(client: SyncPrefectClient, configured: Callable[[], LakeConfig]) -> None:
    """Raises UsageError if the deployments belong to another project, with another folder and another lake than the
    configured one. If the configured lake does not exist, no deployment is refused."""
    noted = _noted()
    for name, there in deployments(client).items():
        lake, folder = lake_of(there), there.job_variables.get("working_dir")
        if lake is None or folder == str(Path.cwd()) or lake[0] in noted:
            continue
        config = configured()
        if _is_here(config, lake):
            continue
        raise UsageError(
            f"`{name}` is deployed for another project: the lake at {lake[1]}, in {folder or 'another folder'}.",
            f"Work there, or set PREFECT_API_URL to the server of this project (its lake: {config.uri}); `flywheel "
            "schedule deploy --replace` takes these over.",
        )


def _is_here(config: LakeConfig, lake: tuple[str, str]) -> bool:
    """Whether a lake, its id and address, is the configured one, or no lake exists at that address."""
    place = resolve(config)
    if lake[1] == place.uri or not (place.store().exists(MARK) or place.store().sizes()):
        return True
    return Lake.open(config, create=False).lake_id == lake[0]


def _noted() -> list[str]:
    """The ids of the lakes that were deployed from this project."""
    try:
        return json.loads((home() / NOTE).read_text())["lakes"]
    except (OSError, ValueError, KeyError):
        return []


def schedule_of(cron: str | None, every: str | None, timezone: str) -> Schedule:
    """Makes a schedule of a cron line, or of an interval such as 30m, 6h or 1d.

    Raises:
        UsageError: neither or both are given, or one cannot be parsed.
    """
    if (cron is None) == (every is None):
        raise UsageError("A schedule is a cron line or an interval.", 'Give --cron "0 2 * * *" or --every 6h.')
    try:
        if cron is not None:
            return CronSchedule(cron=cron, timezone=timezone)
        return IntervalSchedule(interval=timedelta(seconds=_seconds(every or "")), timezone=timezone)
    except ValidationError as error:
        problems = "; ".join(str(one["msg"]).removeprefix("Value error, ") for one in error.errors())
        raise UsageError(
            f"No schedule can be made of that: {problems}.", 'Write, for example, --cron "0 2 * * *".'
        ) from error


def set_schedule(client: SyncPrefectClient, name: str, schedule: Schedule) -> None:
    """Makes this the only schedule of a deployment, and switches it on."""
    there = deployment(client, name)
    made = DeploymentScheduleCreate(schedule=schedule, active=True)
    client.create_deployment_schedules(there.id, [made])
    for one in there.schedules:
        client.delete_deployment_schedule(there.id, one.id)


def switch(client: SyncPrefectClient, name: str, active: bool) -> str:
    """Switches a deployment's schedules on or off and describes them; raises UsageError if it has none."""
    there = deployment(client, name)
    if not there.schedules:
        raise UsageError(f"`{name}` has no schedule.", f"`flywheel schedule set {name} --every 6h` gives it one.")
    for one in there.schedules:
        client.update_deployment_schedule(there.id, one.id, active=active)
    return ", ".join(in_words(one.schedule) for one in there.schedules)


def run_now(client: SyncPrefectClient, name: str, parameters: Mapping[str, Any]) -> UUID:
    """Begins a run of a deployment as soon as a worker is free; returns its id.

    Raises:
        UsageError: a parameter is unknown or has an invalid value.
    """
    there = deployment(client, name)
    known = (there.parameter_openapi_schema or {}).get("properties", {})
    for key in parameters:
        if key not in known:
            raise UsageError(f"`{name}` takes no `{key}`.", f"It takes: {', '.join(known)}.")
    for override in parameters.get("overrides") or ():
        if not re.match(override_pattern(), str(override)):
            problem = f"`overrides`: {str(override)[:200]!r} names no key of the config."
            raise UsageError(problem, "Write KEY=VALUE, such as train.steps=100; docs/config.md lists the keys.")
    try:
        return client.create_flow_run_from_deployment(there.id, parameters={**there.parameters, **parameters}).id
    except PrefectHTTPStatusError as error:
        if error.response.status_code not in (409, 422):
            raise
        raise UsageError(f"Prefect refuses this run of `{name}`: {error.response.json().get('detail')}.") from error


def in_words(schedule: Any) -> str:
    """Describes a schedule in words."""
    if isinstance(schedule, CronSchedule):
        return f"{schedule.cron} ({schedule.timezone or 'UTC'})"
    if isinstance(schedule, IntervalSchedule):
        seconds = int(schedule.interval.total_seconds())
        unit = next(unit for unit in ("d", "h", "m", "s") if seconds % UNITS[unit] == 0)
        return f"every {seconds // UNITS[unit]}{unit}"
    return str(getattr(schedule, "rrule", schedule))


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([1-9]\d{0,6})([smhd])", text)
    seconds = int(found[1]) * UNITS[found[2]] if found else 0
    if seconds < LEAST_S:
        raise UsageError(
            f"`--every {text}` is not an interval of at least one minute.", "Write, for example, 30m, 6h or 1d."
        )
    return seconds


def _there(client: SyncPrefectClient, name: str) -> DeploymentResponse | None:
    try:
        return client.read_deployment_by_name(f"{name}/{name}")
    except ObjectNotFound:
        return None


def _require_ours(client: SyncPrefectClient, place: WorkPool) -> None:
    for name, there in deployments(client).items():
        lake, folder = lake_of(there), there.job_variables.get("working_dir") or there.path
        known = [one["entrypoint"] for one in described()]
        ours = lake[0] == place.lake_id if lake else there.entrypoint in known and folder in (None, str(place.folder))
        if not ours:
            whose = f"of the lake at {lake[1]}" if lake else f"of {there.entrypoint}, whose lake is unknown"
            raise UsageError(
                f"The server already has a deployment `{name}` {whose}, in {folder or 'another folder'}.",
                "A Prefect server has the deployments of one lake: use another one (`flywheel up` starts one where "
                "PREFECT_API_URL is not set), or take these over with their schedules by `flywheel schedule deploy "
                "--replace`.",
            )


def _pool_kind(client: SyncPrefectClient, pool: str) -> str:
    """The kind of a work pool, made if there is none, with a queue for runs that must not overlap."""
    try:
        kind = client.read_work_pool(pool).type
    except ObjectNotFound:
        kind = client.create_work_pool(WorkPoolCreate(name=pool, type="process")).type
    with suppress(ObjectAlreadyExists):  # keeps a limit that the user has changed
        client.update_work_queue(client.create_work_queue(name=TURNS, work_pool_name=pool).id, concurrency_limit=1)
    return kind


def _deploy(client: SyncPrefectClient, one: Mapping[str, Any], place: WorkPool, pool: str, kind: str) -> str:
    flow = flow_at(one["entrypoint"])
    there, variables = _there(client, one["name"]), dict(one["work_pool"]["job_variables"])
    variables["command"] = f"{sys.executable if kind == 'process' else 'python'} -P -m apps.deployed"
    if kind == "process":
        variables["working_dir"] = str(place.folder)
    schedules = there.schedules if there else [_written(schedule) for schedule in one["schedules"]]
    client.create_deployment(
        flow_id=client.create_flow(flow),
        name=one["name"],
        tags=[f"{OF_LAKE}{place.lake_id}", f"{AT}{place.lake}"],
        description=one["description"],
        entrypoint=one["entrypoint"],
        parameters={**one["parameters"], **place.parameters},
        schedules=[
            DeploymentScheduleCreate(schedule=kept.schedule, active=kept.active, slug=kept.slug) for kept in schedules
        ],
        work_pool_name=pool,
        work_queue_name=one["work_pool"]["work_queue_name"],
        job_variables=variables,
        enforce_parameter_schema=one["enforce_parameter_schema"],
        parameter_openapi_schema={**parameter_schema(flow).model_dump(), "additionalProperties": False},
        pull_steps=[],
    )
    return one["name"]


def _written(schedule: Mapping[str, Any]) -> DeploymentScheduleCreate:
    if "cron" in schedule:
        made: Schedule = CronSchedule(cron=schedule["cron"], timezone=schedule.get("timezone", "UTC"))
    elif "interval" in schedule:
        made = IntervalSchedule(interval=timedelta(seconds=schedule["interval"]))
    else:
        raise FlywheelError(f"prefect.yaml: {dict(schedule)} is neither a cron expression nor an interval.")
    return DeploymentScheduleCreate(schedule=made, active=bool(schedule["active"]))
