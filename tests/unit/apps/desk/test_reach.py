"""A lake's store that refuses, or says nothing: whoever asks the site is answered soon, and again once it is back."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from apps.desk import reach
from apps.desk.app import make_app
from apps.desk.reach import StoreConnection, StoreOutageGuard
from schemas.failure import LakeError, StoreUnreachable
from storage.lake import Lake
from tests.unit.apps.conftest import Place


class Store:
    """Keeps whoever asks waiting while it is silent, and turns them away while it refuses."""

    def __init__(self) -> None:
        self.speaks = threading.Event()
        self.speaks.set()
        self.refuses: Exception | None = None
        self.back = 0

    def ask(self) -> None:
        self.speaks.wait(20)
        if self.refuses:
            raise self.refuses

    def came_back(self) -> None:
        self.back += 1
        raise StoreUnreachable("gone again")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(reach, "SLOW_S", 0.1)
    monkeypatch.setattr(reach, "SILENT_S", 0.1)
    monkeypatch.setattr(reach, "PAUSE_S", 0.05)
    made = Store()
    yield made
    made.speaks.set()


@pytest.fixture
def site(store: Store) -> Iterator[TestClient]:
    def rows(_: Request) -> Response:
        store.ask()
        return PlainTextResponse("rows")

    async def long(_: Request) -> Response:
        await asyncio.sleep(0.8)
        return PlainTextResponse("long")

    def said(_: Request, problem: str) -> Response:
        return PlainTextResponse(problem, 503)

    app = Starlette(routes=[Route("/rows", rows), Route("/long", long), Route("/live/one", long)])
    with TestClient(StoreOutageGuard(app, StoreConnection("s3://b/lake", store.ask, store.came_back), said)) as client:
        yield client


def until_answered(site: TestClient) -> None:
    end = time.monotonic() + 10
    while site.get("/rows").status_code != 200:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_request_to_a_silent_store_is_answered_soon_and_the_next_one_at_once(site: TestClient, store: Store) -> None:
    assert site.get("/rows").text == "rows"
    store.speaks.clear()
    began, answer = time.monotonic(), site.get("/rows")
    assert (answer.status_code, answer.text) == (503, "The S3 endpoint of s3://b/lake does not answer.")
    again = [site.get("/rows").status_code for _ in range(20)]
    assert set(again) == {503} and time.monotonic() - began < 5
    assert site.get("/live/one").text == "long"  # it waits for a person, not for the store
    store.speaks.set()
    until_answered(site)
    assert store.back == 1


def test_a_request_that_only_takes_long_is_waited_for_where_the_store_answers(site: TestClient, store: Store) -> None:
    assert site.get("/long").text == "long"
    store.refuses = LakeError("it refuses the credentials")
    assert site.get("/long").text == "long"
    assert store.back == 0


def test_a_store_that_refuses_is_named_and_asked_until_it_is_back(site: TestClient, store: Store) -> None:
    store.refuses = StoreUnreachable("it cannot be reached", "wait")
    answer = site.get("/long")
    assert (answer.status_code, answer.text) == (503, "it cannot be reached")
    store.refuses = None
    until_answered(site)
    assert store.back == 1


def test_a_page_and_a_program_are_told_what_to_do_and_when_to_ask_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = TestClient(make_app(place.config, place.lake), "http://127.0.0.1:8750")

    def away(*_: object, **__: object) -> None:
        raise StoreUnreachable("The S3 endpoint cannot be reached.", "the same command goes on where it was")

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "read", away)
        page, told = site.get("/trajectories"), site.get("/api/trajectories/one")
    for answer in (page, told):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "cannot be reached. Check" in answer.text and "answers again by itself" in answer.text
        assert "the same command" not in answer.text
    assert '<meta http-equiv="refresh" content="5">' in page.text and set(told.json()) == {"error"}
    assert site.get("/trajectories").status_code == 200
    assert "refresh" not in site.get("/nowhere").text
