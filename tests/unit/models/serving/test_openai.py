"""The client of OpenAI-compatible servers: what it repeats, what it refuses, and that it never shows a key."""

import json
from collections.abc import Callable

import httpx
import pytest

import models.serving.openai
from models.serving.openai import Endpoint, NoAnswer, OpenAIClient, charged, charged_since
from schemas.failure import FlywheelError, UsageError

KEY, SECRET = "THE_KEY", "sesame-123"
Handler = Callable[[httpx.Request], httpx.Response]


def client(handler: Handler, retries: int = 2) -> OpenAIClient:
    endpoint = Endpoint("some.section", "http://model.test/v1", KEY, 5.0, retries)
    return OpenAIClient(endpoint, httpx.MockTransport(handler))


def said(text: object) -> httpx.Response:
    return httpx.Response(200, content=json.dumps({"choices": [{"message": {"content": text}}]}))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds slept, which are not."""
    slept: list[float] = []
    monkeypatch.setattr(models.serving.openai.time, "sleep", slept.append)
    return slept


def test_what_may_pass_is_repeated_with_growing_pauses(pauses: list[float]) -> None:
    answers = iter([httpx.Response(503), httpx.Response(429), httpx.Response(502), said("ok")])
    assert client(lambda _: next(answers), retries=9).chat({})["text"] == "ok"
    assert pauses == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("answer", "requests"),
    [(httpx.Response(500, text="out of memory"), 3), (httpx.Response(400, text="too long"), 1), (said(["no"]), 1)],
)
def test_what_does_not_pass_is_no_answer(answer: httpx.Response, requests: int, pauses: list[float]) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer

    with pytest.raises(NoAnswer, match=r"http://model\.test/v1"):
        client(handler).chat({})
    assert len(seen) == requests


def test_half_a_character_can_be_sent_and_what_comes_back_can_be_stored(pauses: list[float]) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["content"] == "\ud83d"
        return said("a \ud83d b")

    assert client(handler).chat({"content": "\ud83d"})["text"] == "a \\ud83d b"


def test_a_key_that_the_server_repeats_is_in_no_message(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> None:
    monkeypatch.setenv(KEY, SECRET)

    def unreachable(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(f"no way to {request.headers['Authorization']}", request=request)

    padded = "x" * 195 + SECRET  # a cut at 200 characters must not leave half of it
    for handler in (
        unreachable,
        *(lambda _, status=status: httpx.Response(status, text=padded) for status in (400, 401, 404)),
    ):
        for call in (lambda one: one.chat({}), lambda one: one.require()):
            try:
                call(client(handler))
            except (NoAnswer, FlywheelError) as error:
                assert SECRET[:5] not in str(error) and error.__cause__ is None


@pytest.mark.parametrize(
    ("status", "named"), [(401, "some.section.key_variable"), (403, KEY), (404, "some.section.model")]
)
def test_what_would_fail_every_request_is_an_error_that_names_the_config(status: int, named: str) -> None:
    with pytest.raises(FlywheelError, match=named):
        client(lambda _: httpx.Response(status)).chat({})


@pytest.mark.parametrize(("status", "works"), [(500, False), (502, False), (501, True), (503, True), (404, True)])
def test_a_server_that_fails_is_refused_before_the_first_request(status: int, works: bool) -> None:
    """A server that loads its model answers 503, one without a list of models 404 or 501."""
    asked = client(lambda _: httpx.Response(status, text="out of memory"))
    if works:
        asked.require()
    else:
        with pytest.raises(FlywheelError, match=rf"some\.section\.url.*{status} in 'out of memory'"):
            asked.require()


def test_a_key_that_no_header_may_hold_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "s\u00e9same\nHost: elsewhere")
    with pytest.raises(UsageError, match=rf"some\.section\.key_variable.*{KEY}") as caught:
        client(lambda _: said("ok"))
    assert "same\n" not in str(caught.value) and "elsewhere" not in str(caught.value)


def test_what_a_server_counts_is_metered_by_who_asked_also_where_its_answer_is_of_no_use() -> None:
    counted = iter([{"total_tokens": 40}, {"total_tokens": 2}, {"total_tokens": -5}, {"total_tokens": "many"}, None])

    def handler(_: httpx.Request) -> httpx.Response:
        usage = next(counted)
        choices = [] if usage == {"total_tokens": 2} else [{"message": {"content": "ok"}}]
        return httpx.Response(200, json={"choices": choices, "usage": usage})

    before, asked = charged(), client(handler)
    assert asked.chat({})["tokens"] == 40
    with pytest.raises(NoAnswer):
        asked.chat({})
    assert [asked.chat({})["tokens"] for _ in range(3)] == [0, 0, 0]
    assert dict(charged_since(before)) == {"some": 42}
