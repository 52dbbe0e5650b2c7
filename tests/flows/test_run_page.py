"""What a Prefect server has of a run: events, log lines, a table and a picture; and none of it costs a run its life."""

from typing import Any

import pytest
from prefect.events.clients import AssertingEventsClient
from prefect.events.worker import EventsWorker


@pytest.fixture
def events() -> Any:
    AssertingEventsClient.reset()
    EventsWorker.set_client_override(AssertingEventsClient)
    yield lambda: [event for client in AssertingEventsClient.all for event in client.events]
    EventsWorker.set_client_override(None)
    AssertingEventsClient.reset()
