"""What is on a server once everything is deployed there, and that no two of what trains run at once."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.exceptions import PrefectHTTPStatusError
from prefect.server.events.schemas.automations import EventTrigger as ServerTrigger
from prefect.server.events.schemas.events import ReceivedEvent
from prefect.states import Completed, Running

from apps.schedule import automations
from apps.schedule.deployments import (
    OF_LAKE,
    POOL,
    TURNS,
    WorkPool,
    deploy,
    deployment,
    deployments,
    names,
    place_of,
    run_now,
    schedule_of,
    set_schedule,
    switch,
)
from apps.schedule.verbs import off, on, run, set_
from schemas.config.sections import LakeConfig
from schemas.failure import UsageError
from storage.lake import Lake


def place(folder: Path, *overrides: str) -> WorkPool:
    """Runs on the lake of a folder."""
    return place_of(None, overrides, Lake.open(LakeConfig(uri=str(folder / "lake"), min_free_mb=1)))


def handed_out(client: SyncPrefectClient) -> set[Any]:
    """The runs that a worker would be given now."""
    return {one.flow_run.id for one in client.get_scheduled_flow_runs_for_work_pool(POOL)}


def test_of_all_that_trains_one_runs_at_a_time_and_the_rest_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with get_client(sync_client=True) as client:
        assert deploy(client, place(tmp_path, "train.steps=5"), replace=True) == names()
        there = deployment(client, "retrain")
        assert there.parameters == {"config": "", "overrides": ["train.steps=5"], "like": "", "after": ""}
        assert there.job_variables["working_dir"] == str(tmp_path) and there.enforce_parameter_schema
        first, light = run_now(client, "retrain", {}), run_now(client, "report", {})
        assert handed_out(client) == {first, light}
        client.set_flow_run_state(first, Running(), force=True)
        second = run_now(client, "flywheel", {"iterations": 2})
        assert handed_out(client) == {light}
        client.set_flow_run_state(first, Completed(), force=True)
        assert handed_out(client) == {light, second}
        for wrong in ({"iterations": "two"}, {"laps": 2}, {"overrides": ["steps"]}, {"overrides": ["train.stepz=3"]}):
            with pytest.raises(UsageError):
                run_now(client, "flywheel", wrong)
            with pytest.raises(PrefectHTTPStatusError, match="409"):  # whoever asks the server itself
                client.create_flow_run_from_deployment(deployment(client, "flywheel").id, parameters=wrong)


def test_deploying_again_keeps_schedules_the_queue_s_limit_and_what_automations_are_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with get_client(sync_client=True) as client:
        deploy(client, place(tmp_path), replace=True)
        assert not any(one.active for each in deployments(client).values() for one in each.schedules)
        set_schedule(client, "collect", schedule_of(None, "90m", "UTC"))
        assert switch(client, "watch", True) == "every 5m"
        queue = client.read_work_queue_by_name(TURNS, POOL)
        assert queue.concurrency_limit == 1
        client.update_work_queue(queue.id, concurrency_limit=3)
        made = automations.put(client)
        client.pause_automation(client.read_automations_by_name(made[0])[0].id)
        before = {one.name: one for one in client.read_automations()}

        deploy(client, place(tmp_path, "train.steps=5"))
        assert automations.put(client) == made
        assert {one.name: one for one in client.read_automations()} == before and not before[made[0]].enabled
        assert client.read_work_queue_by_name(TURNS, POOL).concurrency_limit == 3
        (kept,) = deployment(client, "collect").schedules
        assert kept.active and isinstance(kept.schedule, IntervalSchedule)
        assert kept.schedule.interval.total_seconds() == 5400
        assert [one.active for one in deployment(client, "watch").schedules] == [True]
        client.update_work_queue(queue.id, concurrency_limit=1)


@pytest.mark.slow
def test_the_deployments_of_another_lake_are_not_taken_over_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    theirs.mkdir()
    with get_client(sync_client=True) as client:
        monkeypatch.chdir(theirs)
        deploy(client, place(theirs, "train.steps=5"), replace=True)
        monkeypatch.chdir(mine)
        with pytest.raises(UsageError, match=rf"lake at \S*{theirs}/lake, in {theirs}.*schedule deploy --replace"):
            deploy(client, place(mine))
        assert deployment(client, "flywheel").job_variables["working_dir"] == str(theirs)
        automations.put(client)
        deploy(client, place(mine), replace=True)
        assert deployment(client, "flywheel").job_variables["working_dir"] == str(mine)
        client.update_deployment(deployment(client, "report").id, DeploymentUpdate(tags=[], entrypoint="else.report"))
        with pytest.raises(UsageError, match=r"deployment `report` of else\.report, whose lake is unknown"):
            deploy(client, place(mine))
        deploy(client, place(mine), replace=True)
        deploy(client, place(mine))


def test_schedules_of_another_project_are_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs, nobodys = (tmp_path / name for name in ("mine", "theirs", "nobodys"))
    for folder in (mine, theirs, nobodys):
        folder.mkdir()
        (folder / "flywheel.toml").write_text("[environments.fake]\n[suite]\ntasks = ['two-steps']\nheld_out = []\n")
    with get_client(sync_client=True) as client:
        monkeypatch.chdir(theirs)
        deploy(client, place(theirs), replace=True)
        before, kept = handed_out(client), schedules(client)
        monkeypatch.chdir(mine)
        Lake.open(LakeConfig(uri="lake"))
        for act in (
            lambda: on("watch"),
            lambda: off("watch"),
            lambda: run("report"),
            lambda: set_("collect", every="6h"),
        ):
            with pytest.raises(UsageError, match=rf"another project: the lake at \S*{theirs}/lake, in {theirs}"):
                act()
        assert (handed_out(client), schedules(client)) == (before, kept)
        for folder in (nobodys, theirs):  # a folder in which there is no lake is no other project
            monkeypatch.chdir(folder)
            on("watch")


def test_automations_heed_the_events_of_our_lake_and_the_runs_of_our_deployments_alone(tmp_path: Path) -> None:
    with get_client(sync_client=True) as client:
        deploy(client, place(tmp_path), replace=True)
        made = [client.read_automations_by_name(name)[0] for name in automations.put(client)]
        tags = deployment(client, "retrain").tags
    rules = {one.name: ServerTrigger.model_validate(one.trigger.model_dump()) for one in made}
    (mine,) = (tag.removeprefix(OF_LAKE) for tag in tags if tag.startswith(OF_LAKE))
    retrain = rules["flywheel: retrain on enough new accepted steps"]
    for lake_id, heeded in ((mine, True), ("0" * 8, False)):
        assert retrain.covers(happened("flywheel.steps.enough", f"flywheel.lake.{lake_id}")) == heeded
    dead, run = rules["flywheel: end runs whose process died"], "prefect.flow-run.7f"
    ours = {"prefect.resource.role": "deployment", "prefect.resource.id": f"prefect.deployment.{retrain_id(made)}"}
    theirs = {**ours, "prefect.resource.id": "prefect.deployment.00000000"}
    for related, heeded in (([ours], True), ([theirs], False), ([], False)):
        for event in ("heartbeat", "Completed", "Suspended", "Paused", "Scheduled", "AwaitingRetry", "Mine"):
            assert dead.covers(happened(f"prefect.flow-run.{event}", run, related)) == heeded
    assert dead.starts_after("prefect.flow-run.heartbeat") and not dead.starts_after("prefect.flow-run.Suspended")


def schedules(client: SyncPrefectClient) -> dict[str, list[Any]]:
    return {name: [(one.id, one.active) for one in there.schedules] for name, there in deployments(client).items()}


def retrain_id(made: list[Any]) -> str:
    return str(next(one.actions[0].deployment_id for one in made if one.name.startswith("flywheel: retrain")))


def happened(event: str, resource: str, related: Sequence[dict[str, str]] = ()) -> ReceivedEvent:
    about = {"prefect.resource.id": resource}
    now = datetime.now(UTC)
    fields = {"occurred": now, "received": now, "event": event, "resource": about, "related": list(related)}
    return ReceivedEvent.model_validate({**fields, "id": uuid4()})


def test_a_run_s_keys_are_checked_before_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "flywheel.toml"
    own.write_text("[environments.fake]\n[suite]\ntasks = ['two-steps']\nheld_out = []\n")
    with get_client(sync_client=True) as client:
        deploy(client, place(tmp_path), replace=True)
        before = handed_out(client)
        for name in ("flywheel", "retrain"):
            with pytest.raises(UsageError, match="stepz"):
                run(name, overrides=["train.stepz=4"])
            with pytest.raises(UsageError, match="stepz"):
                run(name, ['overrides=["train.stepz=4"]'])
        own.write_text(own.read_text() + "[train]\nstepy = 4\n")
        with pytest.raises(UsageError, match="stepy"):
            run("flywheel")
        assert handed_out(client) == before
