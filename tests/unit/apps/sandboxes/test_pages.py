"""Who may use our sandboxes over the wire, the task pages, and outcomes and screenshots as they are written."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from apps.desk.serve import token_for
from apps.sandboxes.guard import token_named
from environments.openenv.client import ServerLost, WireClient
from environments.openenv.environment import OpenEnvConfig, OpenEnvEnvironment
from environments.openenv.wire import observation_of, observed, refused, text_of
from environments.pool import SandboxPool
from environments.registry import verifier_of
from schemas import action as act
from schemas.failure import FlywheelError, UsageError
from schemas.observation import Observation, Outcome
from tests.fixtures.sentences import Sentences
from tests.unit.apps.sandboxes.served import served, serving


def test_a_token_is_asked_for_at_the_handshake_and_on_every_page_but_health(sentence: Sentences) -> None:
    async def ask() -> list[int]:
        async with served(serving(), token="t" * 20) as url, httpx.AsyncClient(base_url=url) as web:
            codes = [(await web.get(page)).status_code for page in ("/health", "/schema", "/metadata")]
            given = {"Authorization": f"Bearer {'t' * 20}"}
            codes.append((await web.get("/schema", headers=given)).status_code)
            for token in (None, "another"):
                with sentence.raises(ServerLost):
                    await WireClient(url, token).open()
            client = WireClient(url, "t" * 20)
            await client.open()
            await client.state()
            await client.close()
            return codes

    assert asyncio.run(ask()) == [200, 401, 401, 200]
    with sentence.raises(UsageError, "--host", "A_TOKEN"):
        token_for("0.0.0.0", "A_TOKEN", "--host")


def test_a_variable_that_was_named_must_hold_a_token(monkeypatch: pytest.MonkeyPatch, sentence: Sentences) -> None:
    monkeypatch.delenv("USUAL", raising=False)
    assert token_named("127.0.0.1", "USUAL", "USUAL") is None
    monkeypatch.setenv("MINE", "")
    with sentence.raises(UsageError, "--token-variable"):
        token_named("127.0.0.1", "MINE", "USUAL")
    monkeypatch.setenv("MINE", "t" * 20)
    assert token_named("127.0.0.1", "MINE", "USUAL") == "t" * 20


@pytest.mark.parametrize("headers", [{"Origin": "http://elsewhere.example"}, {"Host": "elsewhere.example"}])
def test_a_page_of_another_site_opens_no_session(headers: dict[str, str]) -> None:
    async def ask(url: str) -> None:
        if "Host" in headers:
            async with httpx.AsyncClient(base_url=url) as web:
                assert (await web.get("/schema", headers=headers)).status_code == 421
        else:
            with pytest.raises(InvalidStatus, match="403"):
                await connect(f"{url.replace('http', 'ws')}/ws", additional_headers=headers)

    async def run() -> None:
        async with served(serving()) as url:
            await ask(url)

    asyncio.run(run())


def test_tasks_are_listed_by_split_and_a_reset_may_name_one_by_its_number() -> None:
    async def ask() -> tuple[Any, ...]:
        async with served(serving(held_out=True)) as url, httpx.AsyncClient(base_url=url) as web:
            names = (await web.get("/list_environments")).json()
            splits = (await web.get(f"/{names[0]}/splits")).json()
            tasks = (await web.post(f"/{names[0]}/tasks", json={"split": "held_out"})).json()["tasks"]
            client = WireClient(url)
            await client.open()
            answer = await client.reset({"split": "held_out", "index": 0, "seed": 2_000_001})
            await client.close()
            away = (await web.post(f"/{names[0]}/task", json={"split": "train", "index": 9})).status_code
            return splits, [task["task_id"] for task in tasks], answer.metadata["task_id"], away

    assert asyncio.run(ask()) == (["train", "held_out"], ["fake/click-red"], "fake/click-red", 404)


def test_a_held_out_task_is_served_only_if_that_is_said(sentence: Sentences) -> None:
    with sentence.raises(UsageError, "--tasks", "fake/click-red", hint="--held-out"):
        serving(names=["click-red"])
    assert serving(names=["click-red"], held_out=True).tasks.keys() == {"fake/click-red"}


def theirs_at(url: str) -> OpenEnvEnvironment:
    tasks = {"one": {"instruction": "", "reset": {"task_id": "click-one", "elements": True}}}
    return OpenEnvEnvironment("theirs", OpenEnvConfig.model_validate({"kind": "openenv", "url": url, "tasks": tasks}))


def test_doctor_says_of_a_server_without_held_out_seeds_that_no_policy_can_be_measured_there(
    sentence: Sentences,
) -> None:
    async def run() -> None:
        async with served(serving()) as url:
            with sentence.raises(FlywheelError):
                await asyncio.to_thread(theirs_at(url).probes()[1].examine)

    asyncio.run(run())


def test_the_outcome_over_the_wire_is_the_tasks_own() -> None:
    async def run() -> Outcome:
        async with served(serving(held_out=True)) as url:
            theirs = theirs_at(url)
            verifier = verifier_of("openenv")
            assert verifier is not None
            assert "is healthy" in await asyncio.to_thread(theirs.probes()[0].examine)
            assert "1 task started" in await asyncio.to_thread(theirs.probes()[1].examine)
            async with SandboxPool([theirs]) as pool, pool.lease(theirs.task("one"), 4) as sandbox:
                for row in range(100):
                    await sandbox.perform(act.Click(x=0.1 + 0.2 * (row % 5), y=0.4 + 0.03 * (row // 5)))
                    if (outcome := await sandbox.verify(verifier)).over:
                        return outcome
        raise AssertionError("it never ended")

    outcome = asyncio.run(run())
    assert outcome.done or outcome.truncated


def test_a_message_with_a_screenshot_is_the_json_that_it_would_be_anyway() -> None:
    shown = observation_of(Observation(b"\x00\xff\xfepng", 4, 3, 'Say "screenshot":"" and \\ \u00e9.'), False)
    for message in (
        observed(shown, 1.0, True, {"screenshot": "", "reason": '"screenshot":""'}),
        refused("EXECUTION_ERROR", "no"),
        {"type": "state", "data": {"seed": None}},
    ):
        assert json.loads(text_of(message)) == message
