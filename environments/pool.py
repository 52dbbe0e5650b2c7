"""Lease sandboxes from a pool: `async with pool.lease(task, seed) as sandbox` is the only way to get one.

The pool has several environments, each with its own hosts, size and time limits; a task gets a sandbox of its
environment.

For each environment, a few hosts (browsers) have a few sandboxes (pages) each.

The death of a host ends only its own leases: a warm spare takes its place and the host is restarted in the background.
A lease without requests for too long is reclaimed. A host without leases for too long is stopped until it is needed. If
every sandbox is leased, a caller waits in line for the next returned one.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from environments.environment import Environment
from environments.host import Host
from environments.leased import Leased, list_lease, unlist_lease
from environments.sandbox import Sandbox
from schemas.failure import EnvironmentDown, SandboxFailure
from schemas.tables.task import GuiTask

STARTS = 3
"""Attempts to start the first host before the environment counts as down."""
TEND_S = 5.0
"""Seconds between two checks of the leases and the hosts."""


@dataclass(slots=True)
class PoolMetrics:
    """Counts since the pool was made."""

    leases: int = 0
    """Sandboxes that were started."""
    deaths: int = 0
    """Leases that ended because the sandbox died or hung."""
    restarts: int = 0
    """Dead hosts that were replaced."""
    reclaimed: int = 0
    """Leases reclaimed because the owner sent no request for too long."""


@dataclass(slots=True, eq=False)
class _Lease:
    """A started sandbox, until it is given back."""

    host: Host
    sandbox: Sandbox
    number: int = 0


@dataclass(slots=True, eq=False)
class _Place:
    """A host and its usage."""

    host: Host
    wanted: bool = False
    """Whether the host should be alive: it was started, and was not stopped for idleness."""
    idle_since: float = 0.0
    reviving: "asyncio.Task[None] | None" = field(default=None, repr=False)


class Leases:
    """Leases the sandboxes of one environment, at most its size at a time.

    Args:
        environment: the environment of the sandboxes.
        metrics: counters, which leases increment.
        clock: clock in seconds.

    Raises:
        FlywheelError: the environment needs a host that is not available.
    """

    def __init__(
        self, environment: Environment[Any], metrics: PoolMetrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.size = environment.size
        self._environment, self._metrics, self._clock = environment, metrics, clock
        self._places = [_Place(environment.host()) for _ in range(environment.hosts)]
        self._spares = [_Place(environment.host()) for _ in range(environment.spares)]
        self._free = asyncio.Semaphore(self.size)
        self._held: set[_Lease] = set()
        self._tending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts all hosts, so that no lease has to wait for one; a host that dies during its start is started again.

        Raises:
            EnvironmentDown: a host died `STARTS` times.
        """
        await asyncio.gather(*(self._start(place) for place in (*self._places, *self._spares)))
        self._tending = asyncio.create_task(self._tend_for_ever())

    async def _start(self, place: _Place) -> None:
        for tries in range(1, STARTS + 1):
            try:
                await self._revive(place)
                return
            except SandboxFailure as failure:
                if tries == STARTS:
                    hint = "`flywheel doctor` checks the requirements. The same command then continues."
                    raise EnvironmentDown(
                        f"No sandbox starts, tried {STARTS} times: {failure.reason}.", hint
                    ) from failure

    async def close(self) -> None:
        """Ends all hosts; running leases fail."""
        places = (*self._places, *self._spares)
        ending = [task for task in (self._tending, *(place.reviving for place in places)) if task is not None]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await asyncio.gather(*(place.host.close() for place in places))

    @asynccontextmanager
    async def lease(self, task: GuiTask, seed: int, trajectory_id: str = "") -> AsyncIterator[Sandbox]:
        """Leases a sandbox in which `task` with `seed` has been started; stops it on exit. Raises SandboxFailure."""
        await self._free.acquire()
        try:
            one = await self._begin(task, seed)
        except BaseException:
            self._free.release()
            raise
        self._metrics.leases += 1
        self._held.add(one)
        since, begun = time.time(), self._clock()
        one.number = list_lease(
            lambda number: Leased(
                lease=number,
                environment=task.environment,
                kind=self._environment.config.kind or task.environment,
                task_id=task.task_id,
                seed=seed,
                trajectory_id=trajectory_id,
                since=since,
                silent_s=min(one.sandbox.silent_s, self._clock() - begun),  # without the time of its start
                host_mb=one.host.memory_mb,
                own_mb=one.sandbox.memory_mb,
            )
        )
        try:
            yield one.sandbox
        except SandboxFailure:
            self._metrics.deaths += 1
            raise
        finally:
            await self._give_back(one)

    async def _give_back(self, one: _Lease) -> None:
        if one not in self._held:
            return
        self._held.remove(one)
        unlist_lease(one.number)
        try:
            await one.sandbox.stop()
        finally:
            one.host.leases -= 1
            self._free.release()

    async def tend(self) -> None:
        """Runs one check: reclaims unused leases, replaces dead or hanging hosts and stops idle ones."""
        limit_s = self._environment.config.lease_s
        for one in [one for one in self._held if one.sandbox.silent_s > limit_s]:
            self._metrics.reclaimed += 1
            key = f"environments.{self._environment.name}.lease_s"
            await one.sandbox.reclaim(f"reclaimed after {limit_s:g} s in which nothing was asked of it (`{key}`)")
            await self._give_back(one)
        for place in (*self._places, *self._spares):
            if place.wanted and place.host.alive and not place.host.leases and not await place.host.healthy():
                await place.host.close()
        self._replace_dead()
        await self._rest()

    async def _tend_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TEND_S)
            with contextlib.suppress(SandboxFailure):  # the next check tries a dead host again
                await self.tend()

    def _replace_dead(self) -> None:
        """Replaces each dead host with a warm spare, and restarts the dead one in the background."""
        for number, place in enumerate(self._places):
            if not place.wanted or place.host.alive:
                continue
            warm = next((spare for spare in self._spares if spare.host.alive), None)
            if warm is not None:
                self._places[number], self._spares[self._spares.index(warm)] = warm, place
                warm.idle_since = self._clock()
        for place in (*self._places, *self._spares):
            if place.wanted and not place.host.alive and (place.reviving is None or place.reviving.done()):
                place.reviving = asyncio.create_task(self._revive_behind(place))

    async def _revive_behind(self, place: _Place) -> None:
        with contextlib.suppress(SandboxFailure):  # the next lease tries again and gets the error
            await self._revive(place)

    async def _revive(self, place: _Place) -> None:
        place.wanted, place.idle_since = True, self._clock()
        self._metrics.restarts += await place.host.revive()

    async def _rest(self) -> None:
        """Stops all except one of the hosts that had no lease for too long."""
        limit_s, now = self._environment.host_idle_s, self._clock()
        if limit_s is None:
            return
        for place in self._places:
            if place.host.leases:
                place.idle_since = now
        awake = [place for place in self._places if place.wanted]
        for place in awake[1:]:
            if not place.host.leases and now - place.idle_since > limit_s:
                place.wanted = False
                await place.host.close()

    async def _begin(self, task: GuiTask, seed: int) -> _Lease:
        """Returns a started sandbox; tries a second time if the host died before the task was started."""
        try:
            return await self._begin_once(task, seed)
        except SandboxFailure:
            if all(place.host.alive for place in self._places if place.wanted):
                raise
            return await self._begin_once(task, seed)

    async def _begin_once(self, task: GuiTask, seed: int) -> _Lease:
        self._replace_dead()
        place = self._place()
        host = place.host
        host.leases += 1
        sandbox: Sandbox | None = None
        try:
            await self._revive(place)
            sandbox = host.sandbox()
            sandbox.clock = self._clock
            await sandbox.start(task, seed)
        except BaseException:
            try:
                if sandbox is not None:
                    await sandbox.stop()
            finally:
                host.leases -= 1
            raise
        return _Lease(host, sandbox)

    def _place(self) -> _Place:
        """Selects the host for the next sandbox: the emptiest living host, or another host if these are full."""
        room = [place for place in self._places if place.host.leases < self._environment.sandboxes]
        return min(room, key=lambda place: (not place.host.alive, place.host.leases))


class SandboxPool:
    """Leases sandboxes of several environments."""

    def __init__(self, environments: Iterable[Environment[Any]]) -> None:
        """Raises FlywheelError if an environment needs a host (a browser) that is not available."""
        self.metrics = PoolMetrics()
        self._leases = {environment.name: Leases(environment, self.metrics) for environment in environments}

    @property
    def sizes(self) -> dict[str, int]:
        """Maximum number of simultaneous leases, by environment."""
        return {name: leases.size for name, leases in self._leases.items()}

    async def start(self) -> None:
        """Starts all hosts, so that no lease has to wait for one; raises EnvironmentDown."""
        await asyncio.gather(*(leases.start() for leases in self._leases.values()))

    async def close(self) -> None:
        """Ends all hosts; running leases fail."""
        await asyncio.shield(asyncio.gather(*(leases.close() for leases in self._leases.values())))

    async def __aenter__(self) -> "SandboxPool":
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def lease(self, task: GuiTask, seed: int, trajectory_id: str = "") -> AbstractAsyncContextManager[Sandbox]:
        """Leases a sandbox in which `task` with `seed` has been started; stops it on exit.

        Args:
            task: a task of one of these environments.
            seed: seed of the task.
            trajectory_id: the trajectory in the sandbox, for the list of leases.

        Raises:
            SandboxFailure: no sandbox could be started, or it died while it was leased.
        """
        return self._leases[task.environment].lease(task, seed, trajectory_id)
