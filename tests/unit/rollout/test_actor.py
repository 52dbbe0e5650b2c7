"""How steps of trajectories that run at the same time reach one policy."""

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from models.completion import Completion
from models.policy import Context, Policy
from rollout.actor import Actor
from schemas.failure import FlywheelError, ServerFailure
from tests.unit.models.test_vlm import context


class Slow(Policy):
    """Records what it is asked; a request of seed 0 waits until it is let go."""

    version = "slow"
    dialect = "json"

    def __init__(self, max_concurrency: int = 0) -> None:
        self.max_concurrency = max_concurrency
        self.let_go = threading.Event()
        self.calls: list[int] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        with self._lock:
            self.calls.append(len(contexts))
            self._now += 1
            self.most = max(self.most, self._now)
        if any(one.seed == 0 for one in contexts):
            self.let_go.wait(10.0)
        time.sleep(0.01)
        with self._lock:
            self._now -= 1
        return [Completion(str(one.seed), failure="down" if one.seed == 99 else "") for one in contexts]


class Broken(Policy):
    version = "broken"
    dialect = "json"

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        raise FlywheelError("the key is refused")


class Choosy(Policy):
    version = "choosy"
    dialect = "json"

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        if any(one.seed == 13 for one in contexts):
            raise ValueError("13")
        return [Completion(str(one.seed)) for one in contexts]


class Miscounting(Policy):
    """Answers the context of seed 13 with nothing, and a batch that holds it with too few completions."""

    version = "miscounting"
    dialect = "json"

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        return [Completion(str(one.seed)) for one in contexts if one.seed != 13]


def seeded(seed: int) -> Context:
    first = context(0)
    return Context(first.instruction, first.turns, first.observation, seed)


async def answered(policy: Slow, seeds: Sequence[int]) -> list[str]:
    """Which completions came, in their order; the slow one is let go once all others are there."""
    came: list[str] = []

    async def ask(actor: Actor, seed: int) -> None:
        came.append((await actor.act(seeded(seed))).text)
        if len(came) == len(seeds) - 1:
            policy.let_go.set()

    with Actor(policy) as actor:
        await asyncio.gather(*(ask(actor, seed) for seed in seeds))
    return came


def test_a_slow_answer_of_a_policy_that_takes_calls_at_the_same_time_holds_up_its_own_trajectory_only() -> None:
    policy = Slow(max_concurrency=3)
    came = asyncio.run(answered(policy, range(9)))
    assert sorted(came) == [str(seed) for seed in range(9)] and came[-1] == "0"
    assert policy.most == 3 and set(policy.calls) == {1}


def test_requests_that_arrive_while_a_batch_is_answered_form_the_next_one() -> None:
    policy = Slow()
    policy.let_go.set()
    came = asyncio.run(answered(policy, range(9)))
    assert came == [str(seed) for seed in range(9)]
    assert policy.most == 1 and policy.calls == [9]


def test_whoever_is_cancelled_is_left_out_of_the_next_batch_and_the_others_get_theirs() -> None:
    policy = Slow()

    async def run() -> str:
        with Actor(policy) as actor:
            first = asyncio.create_task(actor.act(seeded(0)))
            await asyncio.sleep(0.05)
            second, third = (asyncio.create_task(actor.act(seeded(seed))) for seed in (1, 2))
            await asyncio.sleep(0)
            first.cancel()
            second.cancel()
            policy.let_go.set()
            return (await third).text

    assert asyncio.run(run()) == "2"
    assert policy.calls == [1, 1]


def test_a_completion_names_its_version_and_newer_weights_are_taken_up_with_the_next_batch() -> None:
    first, second = Slow(), Slow()
    second.version = "slow+1"
    newest = iter([None, second, None])

    async def run() -> list[str]:
        with Actor(first, newer=lambda: next(newest)) as actor:
            return [(await actor.act(seeded(seed))).version for seed in (1, 2, 3)]

    assert asyncio.run(run()) == ["slow", "slow+1", "slow+1"]
    assert (first.calls, second.calls) == ([1], [1, 1])


def test_one_context_that_fails_fails_none_of_its_batch() -> None:
    async def ask() -> list[Completion | BaseException]:
        with Actor(Choosy()) as actor:
            return await asyncio.gather(*(actor.act(seeded(seed)) for seed in (1, 2, 13, 4, 5)), return_exceptions=True)

    first, second, failed, *others = asyncio.run(ask())
    assert [one.text for one in (first, second, *others) if isinstance(one, Completion)] == ["1", "2", "4", "5"]
    assert isinstance(failed, ValueError)


def test_a_policy_that_answers_with_another_number_fails_only_the_contexts_without_an_answer() -> None:
    async def ask() -> list[Completion | BaseException]:
        with Actor(Miscounting()) as actor:
            asked = asyncio.gather(*(actor.act(seeded(seed)) for seed in (1, 13, 4)), return_exceptions=True)
            return await asyncio.wait_for(asked, 10.0)

    first, failed, other = asyncio.run(ask())
    assert [one.text for one in (first, other) if isinstance(one, Completion)] == ["1", "4"]
    assert isinstance(failed, ValueError)


def test_a_server_that_fails_and_a_policy_that_raises_are_told_to_whoever_asked() -> None:
    async def ask(policy: Policy, seed: int) -> Completion:
        with Actor(policy) as actor:
            return await actor.act(seeded(seed))

    with pytest.raises(ServerFailure, match="down"):
        asyncio.run(ask(Slow(), 99))
    with pytest.raises(FlywheelError, match="refused"):
        asyncio.run(ask(Broken(), 1))
