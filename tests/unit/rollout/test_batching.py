"""How requests of plays that run side by side reach one model."""

import asyncio
import threading
import time
from collections.abc import Sequence

from models.policy import Context, Policy, Reply
from rollout.batching import BatchedPolicy
from tests.unit.models.test_vlm import context


class Slow(Policy):
    """Notes what it is asked; a request of seed 0 waits until it is let go."""

    version = "slow"
    dialect = "json"

    def __init__(self, side_by_side: int) -> None:
        self.side_by_side = side_by_side
        self.let_go = threading.Event()
        self.calls: list[int] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Reply]:
        with self._lock:
            self.calls.append(len(contexts))
            self._now += 1
            self.most = max(self.most, self._now)
        if any(one.seed == 0 for one in contexts):
            self.let_go.wait(10.0)
        time.sleep(0.01)
        with self._lock:
            self._now -= 1
        return [Reply(str(one.seed), "", "", None) for one in contexts]


async def asked(policy: Slow, seeds: Sequence[int]) -> list[str]:
    """Which replies came, in their order; the slow one is let go once all others are there."""
    batched, came = BatchedPolicy(policy), []

    async def ask(seed: int) -> None:
        first = context(0)
        reply = await batched.act(Context(first.instruction, first.turns, first.observation, seed), 0.0)
        came.append(reply.text)
        if len(came) == len(seeds) - 1:
            policy.let_go.set()

    await asyncio.gather(*(ask(seed) for seed in seeds))
    batched.close()
    return came


def test_a_slow_answer_of_a_policy_that_takes_calls_side_by_side_holds_up_its_own_play_only() -> None:
    policy = Slow(side_by_side=3)
    came = asyncio.run(asked(policy, range(9)))
    assert sorted(came) == [str(seed) for seed in range(9)] and came[-1] == "0"
    assert policy.most == 3 and set(policy.calls) == {1}


def test_requests_that_arrive_while_a_batch_is_answered_form_the_next_one() -> None:
    policy = Slow(side_by_side=0)
    policy.let_go.set()
    came = asyncio.run(asked(policy, range(9)))
    assert came == [str(seed) for seed in range(9)]
    assert policy.most == 1 and policy.calls == [9]


def test_requests_of_another_temperature_wait_for_a_batch_of_their_own() -> None:
    policy = Slow(side_by_side=0)

    async def both() -> None:
        batched, one = BatchedPolicy(policy), context(1)
        await asyncio.gather(batched.act(one, 0.0), batched.act(one, 1.0), batched.act(one, 0.0))
        batched.close()

    asyncio.run(both())
    assert policy.calls == [2, 1]
