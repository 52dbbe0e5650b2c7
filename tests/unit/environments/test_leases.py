"""Leases: as many as there is room for, each given back once, whatever dies, hangs or is forgotten."""

import asyncio
from collections.abc import Mapping

from hypothesis import example, given, settings
from hypothesis import strategies as st

from environments.environment import Environment
from environments.fake import FakeSandbox
from environments.host import Host
from environments.leased import leased_now
from environments.pool import Leases, PoolMetrics
from environments.sandbox import Sandbox
from schemas.config.sections import EnvironmentConfig
from schemas.failure import SandboxFailure
from schemas.tables.task import TaskEntry
from tests.fixtures.sentences import Sentences
from tests.parts import FAKE

TASK = FAKE.task("click-target")
LEASE_S, IDLE_S = 30.0, 100.0


class Slow(FakeSandbox):
    """Takes a while to be given back; its host counts those that are in it."""

    def __init__(self, host: "Boxes") -> None:
        super().__init__(FAKE.config)
        self.host = host
        host.inside += 1
        host.most = max(host.most, host.inside)

    async def _stop(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        self.host.inside -= 1
        await super()._stop()


class Boxes(Host):
    """A host whose life is in a test's hands."""

    def __init__(self) -> None:
        self.lives, self.hangs, self.begun = False, False, 0
        self.inside, self.most = 0, 0

    @property
    def alive(self) -> bool:
        return self.lives

    async def healthy(self) -> bool:
        return self.lives and not self.hangs

    async def revive(self) -> bool:
        await asyncio.sleep(0)
        if self.lives:
            return False
        self.lives, self.hangs, self.begun = True, False, self.begun + 1
        return self.begun > 1

    def sandbox(self) -> Sandbox:
        return Slow(self)

    async def close(self) -> None:
        self.lives = False


class Boxed(Environment[EnvironmentConfig]):
    """Two hosts of two sandboxes, and one to spare."""

    verifier = "fake"

    def __init__(self) -> None:
        super().__init__("fake", EnvironmentConfig(kind="fake", lease_s=LEASE_S))
        self.made: list[Boxes] = []

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        return FAKE.entries

    @property
    def hosts(self) -> int:
        return 2

    @property
    def sandboxes(self) -> int:
        return 2

    @property
    def spares(self) -> int:
        return 1

    @property
    def host_idle_s(self) -> float:
        return IDLE_S

    def host(self) -> Host:
        self.made.append(Boxes())
        return self.made[-1]


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class LockOwner:
    """Who leases, asks, and may forget."""

    def __init__(self, leases: Leases) -> None:
        self.lease = leases.lease(TASK, 1, "a trajectory")
        self.sandbox: Sandbox | None = None

    async def begin(self) -> None:
        self.sandbox = await self.lease.__aenter__()

    async def end(self) -> None:
        await self.lease.__aexit__(None, None, None)


def together() -> tuple[Leases, Boxed, Clock]:
    """Leases on a clock of the test's."""
    environment, clock = Boxed(), Clock()
    return Leases(environment, PoolMetrics(), clock), environment, clock


STEPS = st.lists(
    st.sampled_from(["lease", "ask", "end", "leave", "kill", "hang", "forget", "idle", "tend"]), max_size=40
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, whom=st.lists(st.integers(0, 7), min_size=40, max_size=40))
@example(steps=["lease", "lease", "lease", "leave", "lease"], whom=[0] * 40)
def test_none_is_leased_twice_and_each_is_given_back_once_whatever_happens(steps: list[str], whom: list[int]) -> None:
    async def run() -> None:
        leases, environment, clock = together()
        await leases.start()
        holders: list[LockOwner] = []
        leaving: list[asyncio.Task[None]] = []
        for step, number in zip(steps, whom, strict=False):
            one = holders[number % len(holders)] if holders else None
            if step == "lease" and len(holders) < leases.size:
                holders.append(LockOwner(leases))
                await holders[-1].begin()
            elif step == "ask" and one is not None and one.sandbox is not None:
                try:
                    await one.sandbox.observe()
                except SandboxFailure:
                    await one.end()
                    holders.remove(one)
            elif step == "end" and one is not None:
                await one.end()
                holders.remove(one)
            elif step == "leave" and one is not None:
                leaving.append(asyncio.create_task(one.end()))
                holders.remove(one)
                await asyncio.sleep(0)
            elif step == "kill":
                environment.made[number % 3].lives = False
            elif step == "hang":
                environment.made[number % 3].hangs = True
            elif step in ("forget", "idle"):
                clock.now += LEASE_S + 1 if step == "forget" else IDLE_S + 1
            await leases.tend()
            assert len([one for one in leased_now() if one.trajectory_id]) <= len(holders)
            ending = sum(not task.done() for task in leaving)
            assert sum(box.leases for box in environment.made) <= len(holders) + ending
            assert all(box.leases <= environment.sandboxes for box in environment.made)
        await asyncio.gather(*leaving, *(one.end() for one in holders))
        assert [box.leases for box in environment.made] == [0, 0, 0]
        assert not leased_now()
        full = [LockOwner(leases) for _ in range(leases.size)]
        await asyncio.wait_for(asyncio.gather(*(one.begin() for one in full)), 10)
        for one in full:
            await one.end()
        await leases.close()
        assert max(box.most for box in environment.made) <= environment.sandboxes

    asyncio.run(run())


def test_a_lease_in_which_nothing_is_asked_is_reclaimed_and_its_place_is_free_at_once(sentence: Sentences) -> None:
    async def run() -> None:
        leases, _, clock = together()
        await leases.start()
        full = [LockOwner(leases) for _ in range(leases.size)]
        for one in full:
            await one.begin()
        clock.now = LEASE_S - 1
        for one in full[1:]:
            assert one.sandbox is not None
            await one.sandbox.observe()
        clock.now = LEASE_S + 1
        await leases.tend()
        assert len(leased_now()) == leases.size - 1
        late = LockOwner(leases)
        await asyncio.wait_for(late.begin(), 10)
        forgetful = full[0].sandbox
        assert forgetful is not None
        with sentence.raises(SandboxFailure, "environments.fake.lease_s"):
            await forgetful.observe()
        for one in (*full, late):
            await one.end()
        await leases.close()

    asyncio.run(run())


def test_a_spare_takes_the_place_of_a_dead_host_before_that_is_begun_anew() -> None:
    async def run() -> None:
        leases, environment, _ = together()
        await leases.start()
        first, second, spare = environment.made
        first.lives = second.lives = False
        begun = LockOwner(leases)
        await begun.begin()
        assert spare.leases == 1
        await leases.tend()
        await asyncio.sleep(0.01)
        assert first.lives
        assert second.lives
        await begun.end()
        await leases.close()

    asyncio.run(run())


def test_a_host_that_hangs_while_nobody_is_in_it_is_begun_anew() -> None:
    async def run() -> None:
        leases, environment, _ = together()
        await leases.start()
        environment.made[0].hangs = True
        await leases.tend()
        await asyncio.sleep(0.01)
        assert [box.begun for box in environment.made] == [2, 1, 1]
        assert environment.made[0].lives
        await leases.close()

    asyncio.run(run())


def test_idle_hosts_rest_but_for_one_until_there_is_need_of_them() -> None:
    async def run() -> None:
        leases, environment, clock = together()
        await leases.start()
        clock.now = IDLE_S + 1
        await leases.tend()
        assert [box.lives for box in environment.made[:2]] == [True, False]
        await leases.tend()
        assert not environment.made[1].lives
        full = [LockOwner(leases) for _ in range(leases.size)]
        for one in full:
            await one.begin()
        assert environment.made[1].lives
        for one in full:
            await one.end()
        await leases.close()

    asyncio.run(run())


def test_what_is_leased_is_listed_with_its_kind_and_trajectory() -> None:
    async def run() -> None:
        leases, _, clock = together()
        await leases.start()
        async with leases.lease(TASK, 7, "0-a-7"):
            clock.now = 5.0
            (listed,) = leased_now()
            assert (listed.environment, listed.kind, listed.seed, listed.trajectory_id) == ("fake", "fake", 7, "0-a-7")
            assert listed.silent_s == 5.0
        assert not leased_now()
        await leases.close()

    asyncio.run(run())
