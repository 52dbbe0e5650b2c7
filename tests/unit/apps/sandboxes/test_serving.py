"""Our sandboxes on OpenEnv's wire: a session is a lease, and no step ever lands in another episode."""

import asyncio
import base64
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from apps.sandboxes.session import WireSession
from environments.fake import FakeSandbox
from environments.openenv.client import ServerLost, ServerRefused, StepResponse, WireClient
from environments.openenv.environment import OpenEnvConfig, OpenEnvEnvironment
from environments.pool import SandboxPool
from environments.registry import verifier_of
from schemas import action as act
from schemas.failure import TrajectoryFailure
from tests.fixtures.sentences import Sentences
from tests.unit.apps.sandboxes.served import TASKS, WAIT, button, played, served, serving


def test_an_episode_is_reset_acted_in_and_scored() -> None:
    async def play(client: WireClient) -> tuple[StepResponse, StepResponse, dict[str, Any]]:
        first = await client.reset({"task_id": "fake/click-one", "seed": 5, "elements": True, "episode_id": "mine"})
        return first, await client.step(button(first)), await client.state()

    first, last, state = played(play)
    assert base64.b64decode(first.observation["screenshot"]).startswith(b"\x89PNG")
    assert first.observation["instruction"].startswith("Click the ")
    assert (first.reward, first.done) == (None, False)
    assert (last.reward, last.done, last.metadata["ended"]) == (1.0, True, "done")
    assert (state["episode_id"], state["task_id"], state["seed"], state["step_count"]) == (
        "mine", "fake/click-one", 5, 1,
    )  # fmt: skip


def test_the_pool_and_the_wire_agree_on_pixels_rewards_and_ends_of_the_same_actions() -> None:
    one = serving()

    def actions(seed: int) -> list[act.Action]:
        chance = random.Random(seed)
        made: list[act.Action] = [act.Click(x=chance.random(), y=0.3 + 0.7 * chance.random()) for _ in range(6)]
        return [*made, act.Finished()] if seed % 3 else [made[0], act.Navigate(content="a")]

    async def ours(pool: SandboxPool, template: str, seed: int) -> list[Any]:
        task, seen = one.task(template), list[Any]()
        verifier = verifier_of(task.verifier)
        assert verifier is not None
        try:
            async with pool.lease(task, seed) as sandbox:
                for action in actions(seed)[: task.max_steps]:
                    await sandbox.perform(action)
                    outcome = await sandbox.verify(verifier)
                    seen.append((outcome.reward, outcome.done, (await sandbox.observe()).png))
                    if outcome.done:
                        break
        except TrajectoryFailure as failure:
            seen.append((failure.boundary, failure.reason))
        return seen

    async def compare() -> int:
        compared = 0
        async with served(one) as url:
            tasks = {name: {"instruction": "", "reset": {"task_id": f"fake/{name}"}} for name in TASKS[:3]}
            config = OpenEnvConfig.model_validate({"kind": "openenv", "url": url, "tasks": tasks, "sessions": 2})
            theirs = OpenEnvEnvironment("theirs", config)
            async with SandboxPool([theirs]) as wired:
                for seed in range(24):
                    for template in TASKS[:3]:
                        expected, seen = await ours(one.pool, template, seed), list[Any]()
                        most, verifier = one.task(template).max_steps, verifier_of("openenv")
                        assert verifier is not None
                        try:
                            async with wired.lease(theirs.task(template), seed) as sandbox:
                                for action in actions(seed)[:most]:
                                    await sandbox.perform(action)
                                    outcome = await sandbox.verify(verifier)
                                    seen.append((outcome.reward, outcome.done, (await sandbox.observe()).png))
                                    if outcome.over:
                                        break
                        except TrajectoryFailure as failure:
                            seen.append((failure.boundary, failure.reason))
                        assert seen == expected
                        compared += len(seen)
        return compared

    assert asyncio.run(compare()) > 100


def test_an_error_inside_of_a_sandbox_is_its_failure_and_no_word_about_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def breaks(sandbox: FakeSandbox, action: act.Action) -> None:
        raise ValueError("a number of 5,000 digits")

    monkeypatch.setattr(FakeSandbox, "_perform", breaks)

    async def play(client: WireClient) -> StepResponse:
        await client.reset({"task_id": "click-one", "seed": 1})
        return await client.step(WAIT)

    last = played(play)
    assert (last.done, last.reward, last.metadata["failure"]) == (True, None, "sandbox")
    assert last.metadata["reason"] == "wait: ValueError: a number of 5,000 digits"


def test_a_step_before_a_reset_or_after_the_end_is_refused_and_the_session_goes_on(sentence: Sentences) -> None:
    async def play(client: WireClient) -> list[str]:
        answers: list[str] = []
        for _ in range(2):
            with pytest.raises(ServerRefused) as refused:
                await client.step(WAIT)
            answers.append(str(refused.value))
            await client.reset({"task_id": "click-one", "seed": 1})
            assert (await client.step({"type": "finished"})).metadata["ended"] == "finished"
        return answers

    sentence("\n".join(played(play)))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown task": ({"type": "reset", "data": {"task_id": "click-ohne"}}, "did you mean 'click-one'?"),
    "a held-out task": ({"type": "reset", "data": {"task_id": "click-red"}}, "no task 'click-red' is served"),
    "no task": ({"type": "reset"}, "`reset` names no task"),
    "a seed below 0": ({"type": "reset", "data": {"task_id": "note", "seed": -1}}, "`seed`: -1 is not an integer"),
    "a held-out seed": ({"type": "reset", "data": {"task_id": "note", "seed": 1_000_000}}, "are held out"),
    "a seed in words": ({"type": "reset", "data": {"task_id": "note", "seed": "1"}}, "`seed`: 1 is not an integer"),
    "a key that nobody knows": ({"type": "reset", "data": {"task": "note"}}, "`reset` takes no `task`"),
    "an index too far": ({"type": "reset", "data": {"split": "train", "index": 5}}, "an `index` below 5"),
    "an unknown action": ({"type": "step", "data": {"type": "tap"}}, "Invalid action"),
    "a point off the screen": ({"type": "step", "data": {"type": "click", "x": 1.1, "y": 0}}, "less than or equal"),
    "data that is a list": ({"type": "step", "data": [1]}, "`data` is not an object"),
    "an unknown message": ({"type": "jump"}, "Unknown message 'jump'"),
    "no message": ([], "Unknown message 'None'"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_what_makes_no_sense_is_refused_with_its_reason_and_the_session_goes_on(what: str) -> None:
    async def converse() -> tuple[dict[str, Any], dict[str, Any]]:
        async with served(serving()) as url, connect(f"{url.replace('http', 'ws')}/ws") as socket:
            await socket.send(json.dumps(BAD[what][0]))
            refusal = json.loads(await socket.recv())
            await socket.send('{"type":"reset","data":{"task_id":"click-one","seed":1}}')
            return refusal, json.loads(await socket.recv())

    refusal, then = asyncio.run(converse())
    assert refusal["type"] == "error"
    assert BAD[what][1] in json.dumps(refusal["data"], ensure_ascii=False)
    assert then["type"] == "observation"


def test_frames_that_are_no_json_are_refused_and_one_that_is_too_long_ends_its_session_alone() -> None:
    async def converse() -> tuple[list[str], int]:
        async with served(serving()) as url:
            address = f"{url.replace('http', 'ws')}/ws"
            async with connect(address) as socket, connect(address) as other:
                codes: list[str] = []
                for frame in ("mumble", b"\x00\x01", "[" * 200_000):
                    await socket.send(frame)
                    codes.append(json.loads(await socket.recv())["data"]["code"])
                with pytest.raises(ConnectionClosed) as closed:
                    await socket.send("x" * (20 << 20))
                    await socket.recv()
                assert (await _asked(other, {"type": "state"}))["type"] == "state"
                return codes, closed.value.rcvd.code if closed.value.rcvd else 0

    assert asyncio.run(converse()) == (["INVALID_JSON"] * 3, 1009)


async def _asked(socket: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
    await socket.send(json.dumps(message))
    return json.loads(await socket.recv())


def test_a_box_that_dies_is_told_without_a_reward_and_the_next_reset_leases_another() -> None:
    one = serving(sandboxes=1)

    async def play(client: WireClient) -> tuple[StepResponse, StepResponse]:
        await client.reset({"task_id": "dies", "seed": 3})
        dead = await client.step(WAIT)
        assert one.leased["fake"] == 0
        return dead, await client.reset({"task_id": "click-one", "seed": 3})

    dead, then = played(play, one)
    assert (dead.reward, dead.done) == (None, True)
    assert dead.metadata == {"ended": "failure", "failure": "sandbox", "reason": "the fake box died, as it was made to"}
    assert not then.done


def test_an_action_of_another_kind_of_sandbox_ends_the_episode_without_a_reward() -> None:
    async def play(client: WireClient) -> StepResponse:
        await client.reset({"task_id": "click-one", "seed": 1})
        return await client.step({"type": "press_home"})

    answer = played(play)
    assert (answer.reward, answer.done, answer.metadata["failure"]) == (0.0, True, "action")


def test_the_limit_of_steps_is_told_as_one_and_a_task_without_a_verifier_has_no_reward() -> None:
    async def play(client: WireClient) -> list[tuple[float | None, bool, Any]]:
        await client.reset({"task_id": "note", "seed": 1})
        answers = [await client.step(WAIT) for _ in range(3)]
        return [(one.reward, one.done, one.metadata.get("truncated")) for one in answers]

    assert played(play) == [(None, False, None), (None, False, None), (None, True, True)]


def test_more_sessions_than_sandboxes_are_told_so_after_a_while_and_one_that_ends_makes_room() -> None:
    async def crowd() -> tuple[str, float, bool]:
        loop = asyncio.get_running_loop()
        async with served(serving(sandboxes=1, wait_s=0.3)) as url:
            first, second = WireClient(url), WireClient(url)
            await first.open()
            await first.reset({"task_id": "click-one", "seed": 1})
            await second.open()
            begun = loop.time()
            with pytest.raises(ServerRefused) as refused:
                await second.reset({"task_id": "click-one", "seed": 1})
            waited = loop.time() - begun
            await first.reset({"task_id": "click-one", "seed": 1})  # what it has it keeps
            await first.close()
            return refused.value.code, waited, await _leases(url)

    code, waited, leases = asyncio.run(crowd())
    assert (code, leases) == ("CAPACITY_REACHED", True)
    assert 0.29 < waited < 5


def test_an_episode_that_is_over_makes_room_while_its_session_goes_on() -> None:
    async def batch() -> list[bool]:
        async with served(serving(sandboxes=1, wait_s=5.0)) as url:
            first, second = WireClient(url), WireClient(url)
            done: list[bool] = []
            for client in (first, second, first):
                await (client.open() if not client.alive else asyncio.sleep(0))
                await client.reset({"task_id": "click-one", "seed": 1})
                done.append((await client.step({"type": "finished"})).done)
            await first.close()
            await second.close()
            return done

    assert asyncio.run(batch()) == [True, True, True]


def test_who_types_without_end_is_told_so_and_scored_0(sentence: Sentences) -> None:
    async def play(client: WireClient) -> StepResponse:
        await client.reset({"task_id": "enter-text", "seed": 1})
        return await client.step({"type": "type", "content": "a" * 10_001})

    answer = played(play)
    assert (answer.reward, answer.done, answer.metadata["failure"]) == (0.0, True, "action")
    sentence(answer.metadata["reason"])


@pytest.mark.parametrize(("clients", "sandboxes"), [(1, 1), (4, 2)])
def test_a_session_for_each_episode_always_gets_a_sandbox_of_few(
    clients: int, sandboxes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = FakeSandbox.stop

    async def slowly(self: FakeSandbox) -> None:
        await asyncio.sleep(0.02)  # so that the client is back before its sandbox is free
        await stop(self)

    monkeypatch.setattr(FakeSandbox, "stop", slowly)
    one = serving(sandboxes=sandboxes)

    async def churn() -> None:
        async with served(one) as url:

            async def play(first: int) -> None:
                for seed in range(first, first + 15):
                    client = WireClient(url)
                    await client.open()
                    assert not (await client.reset({"task_id": "click-one", "seed": seed})).done
                    await client.close()

            await asyncio.gather(*(play(100 * number) for number in range(clients)))

    asyncio.run(churn())
    assert one.sessions == one.leased["fake"] == 0


def test_who_goes_while_it_waits_takes_nothing_and_the_next_in_turn_gets_it() -> None:
    one = serving(sandboxes=1)

    async def crowd() -> bool:
        async with served(one) as url:
            clients = [WireClient(url) for _ in range(3)]
            for client in clients:
                await client.open()
            await clients[0].reset({"task_id": "click-one", "seed": 1})
            waiting = []
            for client in clients[1:]:
                waiting.append(asyncio.create_task(client.reset({"task_id": "click-one", "seed": 1})))
                await asyncio.sleep(0.05)
            clients[1].drop()
            await clients[0].close()
            async with asyncio.timeout(5):
                answers = await asyncio.gather(*waiting, return_exceptions=True)
            await clients[2].close()
            return isinstance(answers[0], ServerLost) and isinstance(answers[1], StepResponse)

    assert asyncio.run(crowd())
    assert one.sessions == one.leased["fake"] == 0


async def _leases(url: str) -> bool:
    """Whether a new session gets a lease within a second."""
    async with asyncio.timeout(1):
        while True:
            client = WireClient(url)
            await client.open()
            try:
                return not (await client.reset({"task_id": "click-one", "seed": 1})).done
            except ServerRefused:
                await asyncio.sleep(0.02)
            finally:
                await client.close()


def test_a_client_that_is_killed_within_a_step_gives_its_lease_back() -> None:
    one = serving(sandboxes=1)

    async def kill() -> bool:
        async with served(one) as url:
            client = WireClient(url)
            await client.open()
            await client.reset({"task_id": "click-one", "seed": 1})
            asyncio.get_running_loop().call_later(0.01, client.drop)
            with pytest.raises(ServerLost):
                for _ in range(1000):
                    await client.step(WAIT)
                    await client.reset({"task_id": "click-one", "seed": 1})
            return await _leases(url)

    assert asyncio.run(kill())
    assert one.sessions == one.leased["fake"] == 0


def test_a_session_that_says_nothing_is_ended_and_its_lease_given_back() -> None:
    one = serving(sandboxes=1)

    async def sleep() -> bool:
        async with served(one, idle_s=0.1) as url:
            client = WireClient(url)
            await client.open()
            await client.reset({"task_id": "click-one", "seed": 1})
            await asyncio.sleep(0.3)
            with pytest.raises((ServerLost, ServerRefused)):
                await client.step(WAIT)
            return await _leases(url)

    assert asyncio.run(sleep())


def test_two_messages_at_once_end_the_session_for_their_answers_could_be_mistaken() -> None:
    one = serving(sandboxes=1)

    async def both() -> list[dict[str, Any]]:
        async with served(one) as url, connect(f"{url.replace('http', 'ws')}/ws") as socket:
            await _asked(socket, {"type": "reset", "data": {"task_id": "click-one", "seed": 1}})
            for _ in range(50):
                await socket.send('{"type":"step","data":{"type":"wait"}}')
            answers: list[dict[str, Any]] = []
            with pytest.raises(ConnectionClosed):
                while True:
                    answers.append(json.loads(await socket.recv()))
            return answers

    last = asyncio.run(both())[-1]["data"]
    assert (last["code"], last["message"]) == ("SESSION_ERROR", "A message came before the last was answered.")
    assert one.leased["fake"] == 0


DOES = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["reset", "dies", "step", "bad", "finish", "drop"])))


@settings(max_examples=60, deadline=None)
@given(DOES)
def test_whatever_sessions_do_no_lease_is_lost_or_doubled_and_each_step_counts_in_its_own_episode(
    does: list[tuple[int, str]],
) -> None:
    one = serving(sandboxes=2, wait_s=0.0)

    async def run() -> None:
        async with one.pool:
            sessions = [WireSession(one) for _ in range(3)]
            episodes: list[tuple[str, int] | None] = [None, None, None]
            for number, (who, what) in enumerate(does):
                episodes[who] = await _does(sessions[who], what, f"e{number}", episodes[who])
                if what == "drop":
                    sessions[who] = WireSession(one)
                state = (await sessions[who].answer({"type": "state"}))["data"]
                if episodes[who] is not None:
                    assert (state["episode_id"], state["step_count"]) == episodes[who]
                assert 0 <= one.leased["fake"] <= 2
            for session in sessions:
                await session.close()
            assert one.leased["fake"] == 0
            async with one.pool.lease(one.task("click-one"), 1), one.pool.lease(one.task("click-one"), 2):
                pass

    asyncio.run(run())


async def _does(session: WireSession, what: str, name: str, episode: tuple[str, int] | None) -> tuple[str, int] | None:
    """Does it; the episode's name and steps by now, or None where none has begun or one may be over."""
    if what in ("reset", "dies"):
        task = "note" if what == "reset" else "dies"
        data = {"task_id": task, "seed": 3, "episode_id": name}
        reply = await session.answer({"type": "reset", "data": data})
        return (name, 0) if reply["type"] == "observation" else None
    if what == "drop":
        await session.close()
        return None
    action = {"step": WAIT, "bad": {"type": "tap"}, "finish": {"type": "finished"}}[what]
    reply = await session.answer({"type": "step", "data": action})
    if reply["type"] == "error":
        return episode
    assert episode is not None
    if reply["data"]["metadata"].get("failure"):
        return None
    return episode[0], episode[1] + 1
