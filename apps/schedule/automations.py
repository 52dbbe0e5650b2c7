"""Define a Prefect server's automations as code: created once by name, and updated in place.

The server is the configured one, else the one that `flywheel up` started on this machine.

Events of the `watch` deployment (`tasks.watch`) start retraining. This deployment counts in the lake, which holds the
state, and the server only reacts. Other programs can emit `flywheel.retraining.wanted`. A server may be shared, so only
events of this lake and runs of its deployments count.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.context import refresh_global_settings_context
from prefect.events.actions import ChangeFlowRunState, RunDeployment, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL

from apps.schedule.deployments import deployment, deployments, lake_of
from common.process import home
from schemas.failure import UsageError
from tasks.running.run_page import DECIDED, DUE, ITERATION_COMPLETED, LAKE, answers
from tasks.watch import AFTER

NOTE = "up.json"
"""File in the work folder with the address of the server of `flywheel up`."""


def found_server() -> str | None:
    """The API's address of the configured server, whether or not it answers, or of one that runs here."""
    if configured := PREFECT_API_URL.value():
        return configured
    try:
        noted = json.loads((home() / NOTE).read_text())["api"]
    except (OSError, ValueError, KeyError):
        return None
    return noted if answers(noted) else None


def use_server(url: str) -> None:
    """Makes a server Prefect's, for this process and those that it starts."""
    os.environ["PREFECT_API_URL"] = url
    refresh_global_settings_context()


@contextmanager
def connected() -> Iterator[SyncPrefectClient]:
    """Yields a client of the selected server.

    Raises:
        UsageError: there is no server, or it does not answer.
    """
    url = found_server()
    if url is None:
        raise UsageError(
            "No Prefect server is configured, and none runs here.",
            "`flywheel up` starts one; or set PREFECT_API_URL to the address of yours.",
        )
    if not answers(url):
        raise UsageError(f"The Prefect server at {url} does not answer.", "Start it, or correct PREFECT_API_URL.")
    use_server(url)
    with get_client(sync_client=True) as client:
        yield client


def page_of(flow_run: UUID | str) -> str:
    """Returns the address of Prefect's page of a run."""
    return f"{(PREFECT_API_URL.value() or '').removesuffix('/api')}/runs/flow-run/{flow_run}"


SILENT_S = 120
"""Seconds without a heartbeat after which a run counts as dead; runs send one every 30 s."""
DEAD = "Its process gave no sign of life."
ANY = "prefect.flow-run.*"
"""Matches every state of a run, including a waiting one of any name, for which no process has to be alive."""
_NAMED = {"__prefect_kind": "jinja", "template": f"{{{{ event.payload.{AFTER} | default('', true) }}}}"}
"""Template of the policy that the event names; empty for an event that names none, such as another program's."""
HEARTBEAT = "prefect.flow-run.heartbeat"
RUNS: dict[str, str | list[str]] = {"prefect.resource.id": "prefect.flow-run.*"}
ENDED = {"prefect.flow-run.Failed", "prefect.flow-run.Crashed"}
"""Ends of a run that a message reports."""
QUALITY_FAILED = "flywheel.quality.failed"
RUN_ENDED = (
    "{{ deployment.name }} ({{ flow_run.name }}) ended as {{ flow_run.state.name }}: {{ flow_run.state.message }}"
)
"""Template of the message about an end of a run."""


def put(client: SyncPrefectClient) -> list[str]:
    """Creates or updates all automations and returns their names; a disabled one stays disabled.

    An unchanged automation is not written, since an update makes it forget its awaited runs.

    Raises:
        UsageError: nothing is deployed, or the deployments name no lake.
    """
    return [_put(client, automation) for automation in _automations(client)]


def notify(client: SyncPrefectClient, block: str) -> list[str]:
    """Creates or updates the automations that send messages by a notification block, and returns their names.

    Messages are about a refusal of the quality gate, a run of a deployment that failed or died, and a promotion.

    Args:
        client: client of the server.
        block: type and name of the block, such as `slack-webhook/alerts`.

    Raises:
        UsageError: there is no such block, nothing is deployed, or the deployments name no lake.
    """
    kind, slash, name = block.partition("/")
    if not (kind and slash and name):
        raise UsageError(f"`{block}` is not of the form TYPE/NAME.", "Write, for example, slack-webhook/alerts.")
    try:
        there = client.read_block_document_by_name(name, kind)
    except ObjectNotFound as error:
        raise UsageError(
            f"The Prefect server has no block `{block}`.", "Create it on Prefect's page, under Blocks."
        ) from error
    return [_put(client, automation) for automation in _notifications(client, there.id)]


def _put(client: SyncPrefectClient, automation: AutomationCore) -> str:
    there = client.read_automations_by_name(automation.name)
    if not there:
        client.create_automation(automation)
    elif _rule(there[0]) != _rule(automation):
        kept = automation.model_copy(update={"enabled": there[0].enabled})
        whole = AutomationCore(**kept.model_dump(exclude={"owner_resource"}))  # unset fields are not sent
        client.update_automation(there[0].id, whole)
    for twin in there[1:]:
        client.delete_automation(twin.id)
    return automation.name


def _rule(automation: AutomationCore) -> dict[str, Any]:
    return automation.model_dump(include={"description", "trigger", "actions"})


def _automations(client: SyncPrefectClient) -> Iterator[AutomationCore]:
    retrain, report = (deployment(client, name) for name in ("retrain", "report"))
    lake = _lake(retrain)
    for event, why in DUE.items():
        yield _run(f"flywheel: retrain {why}", event, retrain.id, lake, {AFTER: _NAMED})
    yield _run("flywheel: a report after every iteration", ITERATION_COMPLETED, report.id, lake)
    yield AutomationCore(
        name="flywheel: end runs whose process died",
        description=f"A run that gives no sign of life for {SILENT_S} s is crashed, and the next one can begin.",
        trigger=EventTrigger(
            after={HEARTBEAT},
            expect={ANY},
            match=RUNS,
            match_related=_ours(client),
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=SILENT_S),
        ),
        actions=[ChangeFlowRunState(name=None, state=StateType.CRASHED, message=DEAD, force=False)],
    )


def _notifications(client: SyncPrefectClient, block: UUID) -> Iterator[AutomationCore]:
    lake_id, address = _lake(deployment(client, "retrain"))
    ended = EventTrigger(expect=ENDED, match=RUNS, match_related=_ours(client), threshold=1)
    for name, trigger, body, about in (
        ("the quality gate refuses an iteration", _on(QUALITY_FAILED, lake_id), "{{ event.payload.error }}", address),
        ("a policy is promoted", _on(DECIDED["promote"], lake_id), "{{ event.payload.say }}", address),
        ("a run fails or dies", ended, RUN_ENDED, page_of("{{ flow_run.id }}")),
    ):
        sent = SendNotification(block_document_id=block, subject=f"flywheel: {name}", body=f"{body}\n{about}")
        yield AutomationCore(name=f"flywheel: message when {name}", trigger=trigger, actions=[sent])


def _lake(there: DeploymentResponse) -> tuple[str, str]:
    """Returns the id and the address of a deployment's lake; raises UsageError if it names none."""
    if (lake := lake_of(there)) is None:
        raise UsageError("The lake of the deployments is unknown.", "Deploy by `flywheel schedule deploy`.")
    return lake


def _ours(client: SyncPrefectClient) -> dict[str, str | list[str]]:
    """Matches events of runs of this project's deployments."""
    ids = [f"prefect.deployment.{one.id}" for one in deployments(client).values()]
    return {"prefect.resource.role": "deployment", "prefect.resource.id": ids}


def _on(event: str, lake_id: str) -> EventTrigger:
    return EventTrigger(expect={event}, match={"prefect.resource.id": f"{LAKE}.{lake_id}"}, threshold=1)


def _run(
    name: str, event: str, what: UUID, lake: tuple[str, str], parameters: dict[str, Any] | None = None
) -> AutomationCore:
    lake_id, address = lake
    return AutomationCore(
        name=name,
        description=f"On the event {event} of the lake at {address}.",
        trigger=_on(event, lake_id),
        actions=[RunDeployment(source="selected", deployment_id=what, parameters=parameters, job_variables=None)],
    )
