"""What a Prefect server has of a run: events, log lines, a table and a picture; and none of it costs a run its life."""

import base64
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prefect import get_client
from prefect.events.clients import AssertingEventsClient
from prefect.events.worker import EventsWorker

from flows.flywheel import flywheel
from schemas.config import Config
from storage.lake import Lake
from tasks.running import run_page
from tasks.running.curve import success_chart, svg
from tasks.running.iterations import finished_iterations
from tasks.shared.status import IterationStatus

Seen = Callable[[], dict[str, dict[str, Any]]]


@pytest.fixture
def events() -> Iterator[Seen]:
    AssertingEventsClient.reset()
    EventsWorker.set_client_override(AssertingEventsClient)

    def seen() -> dict[str, dict[str, Any]]:
        EventsWorker.instance().wait_until_empty()
        all_of_them = [event for client in AssertingEventsClient.all for event in client.events]
        return {one.event: one.payload for one in all_of_them if one.event.startswith("flywheel.")}

    yield seen
    EventsWorker.set_client_override(None)
    AssertingEventsClient.reset()


def asked(what: str, **body: Any) -> list[dict[str, Any]]:
    with get_client(sync_client=True) as client:
        return client.request("POST", f"/{what}/filter", json=body).json()  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_a_server_hears_of_every_stage_and_its_page_has_the_lines_a_table_and_a_picture(
    small: Config, events: Seen
) -> None:
    flywheel(small, iterations=1)
    seen = events()
    assert {"flywheel.prepare.completed", "flywheel.train.completed", "flywheel.data.accepted"} <= set(seen)
    assert set(seen) & {f"flywheel.policy.{word}" for word in ("promoted", "held", "rejected")}
    assert seen["flywheel.iteration.completed"]["policy"] == "policy-0000"
    accepted = seen["flywheel.data.accepted"]
    assert accepted["accepted"] == accepted["routes"].get("sft", 0)
    artifacts = {one["key"]: one["data"] for one in reversed(asked("artifacts", sort="CREATED_DESC"))}
    assert "collect" in artifacts["flywheel-iteration"]
    kind, _, picture = artifacts["flywheel-success"].partition(",")
    assert kind == "data:image/svg+xml;base64" and xml.fromstring(base64.b64decode(picture)).tag.endswith("svg")
    until = time.monotonic() + 20
    while not any("iteration 0  collect" in one["message"] for one in asked("logs", sort="TIMESTAMP_DESC")):
        assert time.monotonic() < until
        time.sleep(0.5)


@pytest.mark.slow
def test_a_gate_that_refuses_is_an_event_and_neither_that_nor_a_server_s_trouble_changes_the_outcome(
    small: Config, events: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError("the server is gone")

    for name in ("create_table_artifact", "create_image_artifact", "flow_run_logger"):
        monkeypatch.setattr(run_page, name, broken)
    monkeypatch.setattr("tasks.running.run_page.emit_event", broken)
    flywheel(small, iterations=1)
    assert finished_iterations(Lake.open(small.lake)) == [0] and not events()


def test_a_curve_is_a_picture_with_a_point_for_every_iteration() -> None:
    assert success_chart([]) is None
    for n in (1, 100):
        chart = success_chart([measured(iteration) for iteration in range(n)])
        assert chart
        drawn = svg(chart)
        assert drawn.count('<line aria-label="iteration: ') == n and xml.fromstring(drawn).tag.endswith("svg")


def measured(iteration: int) -> IterationStatus:
    none = {
        "held_out": None,
        "synthesized": None,
        "verified": None,
        "verified_fixed_mix": None,
        "orchestration_s": None,
        "stages_s": {},
    }
    return IterationStatus(
        iteration,
        "p",
        0.01 * iteration,
        (0.0, 1.0),
        8,
        explorer=0.5,
        explorer_version="explorer-5",
        trajectories=8,
        promoted=True,
        wall_s=1.0,
        **none,
    )
