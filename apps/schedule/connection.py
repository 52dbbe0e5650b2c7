"""Select the Prefect server: the configured server, else the server that `flywheel up` started on this machine."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.context import refresh_global_settings_context
from prefect.settings import PREFECT_API_URL

from common.process import home
from schemas.failure import UsageError
from tasks.running.run_page import answers

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


def page_of(flow_run: UUID) -> str:
    """Returns the address of Prefect's page of a run."""
    return f"{(PREFECT_API_URL.value() or '').removesuffix('/api')}/runs/flow-run/{flow_run}"
