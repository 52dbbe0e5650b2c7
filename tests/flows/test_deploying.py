"""What is on a server once everything is deployed there, and that no two of what trains run at once."""

from pathlib import Path
from typing import Any

import pytest
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.states import Completed, Running

from apps.schedule import automations
from apps.schedule.deployments import (
    POOL,
    TURNS,
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
from schemas.failure import UsageError


def handed_out(client: SyncPrefectClient) -> set[Any]:
    """The runs that a worker would be given now."""
    return {one.flow_run.id for one in client.get_scheduled_flow_runs_for_work_pool(POOL)}


def test_of_all_that_trains_one_runs_at_a_time_and_the_rest_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with get_client(sync_client=True) as client:
        assert deploy(client, place_of(None, ["train.steps=5"])) == names()
        there = deployment(client, "retrain")
        assert there.parameters == {"config": "", "overrides": ["train.steps=5"], "like": ""}
        assert there.job_variables["working_dir"] == str(tmp_path) and there.enforce_parameter_schema
        first, light = run_now(client, "retrain", {}), run_now(client, "report", {})
        assert handed_out(client) == {first, light}
        client.set_flow_run_state(first, Running(), force=True)
        second = run_now(client, "flywheel", {"iterations": 2})
        assert handed_out(client) == {light}
        client.set_flow_run_state(first, Completed(), force=True)
        assert handed_out(client) == {light, second}
        for wrong in ({"iterations": "two"}, {"laps": 2}, {"overrides": ["steps"]}):
            with pytest.raises(UsageError):
                run_now(client, "flywheel", wrong)


def test_deploying_again_keeps_schedules_the_queue_s_limit_and_what_automations_are_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with get_client(sync_client=True) as client:
        deploy(client, place_of(None, []))
        assert not any(one.active for each in deployments(client).values() for one in each.schedules)
        set_schedule(client, "collect", schedule_of(None, "90m", "UTC"))
        assert switch(client, "watch", True) == "every 5m"
        queue = client.read_work_queue_by_name(TURNS, POOL)
        assert queue.concurrency_limit == 1
        client.update_work_queue(queue.id, concurrency_limit=3)
        made = automations.put(client)
        client.pause_automation(client.read_automations_by_name(made[0])[0].id)
        before = {one.name: one for one in client.read_automations()}

        deploy(client, place_of(None, ["train.steps=5"]))
        assert automations.put(client) == made
        assert {one.name: one for one in client.read_automations()} == before and not before[made[0]].enabled
        assert client.read_work_queue_by_name(TURNS, POOL).concurrency_limit == 3
        (kept,) = deployment(client, "collect").schedules
        assert kept.active and kept.schedule.interval.total_seconds() == 5400
        assert [one.active for one in deployment(client, "watch").schedules] == [True]
        client.update_work_queue(queue.id, concurrency_limit=1)
