"""A fleet of sandboxes as a closed queueing network, event by event, and the bound on paper that it is held against.

A sandbox leases, then steps: it asks the policy, which answers after `answer_s`, and performs. Both take its machine's
processors, first come, first served. A part is a machine's process: it writes finished trajectories in chunks, one
after the other, whose rows its machine makes and whose commits wait for those of others, since a table has one log.
Sandboxes do not wait for that. A sandbox that fails and a machine that dies take what they were at along; it is begun
anew.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

STEADY = (0.2, 0.8)
"""The share of the trajectories between which the pace is read: neither the beginning nor the end."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What one of each takes, in seconds; of a processor unless said otherwise."""

    screen_s: float
    """A lease's or a step's screen."""
    steps: Sequence[int]
    """Of trajectories, to draw from."""
    rows_s: float
    """A trajectory's rows and pictures, made and written."""
    commit_s: float
    """A chunk's commits, in seconds of waiting."""
    gates_s: float
    """A trajectory's gates, which one machine runs in turn."""
    failing: float
    """Sandbox failures by trajectory."""
    replace_s: float
    """From a sandbox's failure to its next lease, waiting."""
    sandbox_mb: float
    """Memory of a sandbox with its share of its browser."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What there is of each."""

    sandboxes: int
    per_machine: int
    cores: int
    """Of a machine."""
    answer_s: float
    """The policy's, waiting."""
    chunk: int
    """Trajectories that a part writes together."""
    mtbf_s: float
    """Of a machine."""
    down_s: float
    """Until a dead machine's part is begun anew."""

    @property
    def machines(self) -> int:
        """That hold all sandboxes."""
        return -(-self.sandboxes // self.per_machine)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated collection came to."""

    committed: int
    pace: float
    """Trajectories committed a second, in the steady part."""
    again: int
    """Trajectories that were begun anew."""
    deaths: int
    """Of machines."""
    processors: float
    """Busy share of the machines' processors over all."""
    log: float
    """Busy share of the tables' log."""
    asked: float
    """Steps a second that the policy answers."""
    backlog: int
    """The most chunks that waited for the log."""


def paces(costs: Costs, fleet: Fleet) -> dict[str, float]:
    """Trajectories a second that each part could bear alone, without failures (operational bounds: 1 / demand of each
    station, and customers / total time without waiting; Denning and Buzen 1978)."""
    steps = sum(costs.steps) / len(costs.steps)
    work = (steps + 1) * costs.screen_s
    return {
        "sandboxes": fleet.sandboxes / (work + steps * fleet.answer_s),
        "processors": fleet.machines * fleet.cores / (work + costs.rows_s),
        "log": fleet.chunk / costs.commit_s,
        "gates": 1 / costs.gates_s,
    }


@dataclass(slots=True)
class _Station:
    """Servers that take jobs first come, first served."""

    clock: "_Clock"
    free: int
    waiting: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque[tuple[float, Callable[[], None]]])
    busy: float = 0.0
    most: int = 0

    def ask(self, seconds: float, then: Callable[[], None]) -> None:
        self.waiting.append((seconds, then))
        self._next()
        self.most = max(self.most, len(self.waiting))

    def _next(self) -> None:
        if self.free and self.waiting:
            self.free -= 1
            seconds, then = self.waiting.popleft()
            self.busy += seconds
            self.clock.after(seconds, lambda: self._end(then))

    def _end(self, then: Callable[[], None]) -> None:
        self.free += 1
        then()
        self._next()


class _Clock:
    def __init__(self) -> None:
        self.now, self._count = 0.0, 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, what))

    def run(self, over: Callable[[], bool]) -> None:
        while self._events and not over():
            self.now, _, what = heapq.heappop(self._events)
            what()


class _Machine:
    """One part's sandboxes, its processors, and what it has finished and not handed on."""

    def __init__(self, of: "_Collection", sandboxes: int) -> None:
        self.of, self.sandboxes = of, sandboxes
        self.life, self.busy = 0, 0.0
        self.begin()

    def begin(self) -> None:
        self.processors = _Station(self.of.clock, self.of.fleet.cores)
        self.running, self.finished, self.writing = 0, 0, 0
        """Trajectories; all of them are lost with it."""
        for _ in range(self.sandboxes):
            self._lease()
        self.of.clock.after(self.of.dice.expovariate(1 / self.of.fleet.mtbf_s), self._alive(self._die))

    def _alive(self, then: Callable[[], None]) -> Callable[[], None]:
        """What happens only if this machine has not died meanwhile."""
        life = self.life
        return lambda: then() if self.life == life else None

    def _die(self) -> None:
        self.life += 1
        lost = self.running + self.finished + self.writing
        self.of.left += lost
        self.of.again += lost
        self.of.deaths += 1
        self.busy += self.processors.busy
        self.of.clock.after(self.of.fleet.down_s, self.begin)

    def _lease(self) -> None:
        if self.of.left == 0:
            return
        self.of.left -= 1
        self.running += 1
        steps = self.of.dice.choice(self.of.costs.steps)
        fails = self.of.dice.random() < self.of.costs.failing
        at = self.of.dice.randrange(steps + 1) if fails else -1
        self.processors.ask(self.of.costs.screen_s, self._alive(lambda: self._go_on(steps, at)))

    def _go_on(self, left: int, fails_at: int) -> None:
        """With so many steps left; fails where `fails_at` are."""
        if left == fails_at:
            self.of.again += 1
            self.of.left += 1
            self.running -= 1
            self.of.clock.after(self.of.costs.replace_s, self._alive(self._lease))
        elif left == 0:
            self._finish()
        else:
            self.of.asked += 1
            perform = lambda: self.processors.ask(  # noqa: E731
                self.of.costs.screen_s, self._alive(lambda: self._go_on(left - 1, fails_at))
            )
            self.of.clock.after(self.of.fleet.answer_s, self._alive(perform))

    def _finish(self) -> None:
        self.running -= 1
        self.finished += 1
        self._lease()
        self._write()

    def _write(self) -> None:
        """Begins the next chunk, if it is full or the last and none is being written."""
        count = min(self.finished, self.of.fleet.chunk)
        if self.writing or not count or (count < self.of.fleet.chunk and self.running):
            return
        self.finished, self.writing = self.finished - count, count
        made = self._alive(lambda: self.of.log.ask(self.of.costs.commit_s, self._alive(self._keep)))
        self.processors.ask(count * self.of.costs.rows_s, made)

    def _keep(self) -> None:
        count, self.writing = self.writing, 0
        self.of.commit(count)
        self._write()


class _Collection:
    def __init__(self, costs: Costs, fleet: Fleet, trajectories: int, seed: int) -> None:
        self.costs, self.fleet, self.dice = costs, fleet, random.Random(seed)
        self.clock = _Clock()
        self.log = _Station(self.clock, 1)
        self.left, self.again, self.deaths, self.asked = trajectories, 0, 0, 0
        self.kept: list[tuple[float, int]] = [(0.0, 0)]
        """When how many were committed in all."""
        shares = [fleet.sandboxes // fleet.machines] * fleet.machines
        for number in range(fleet.sandboxes % fleet.machines):
            shares[number] += 1
        self.machines = [_Machine(self, share) for share in shares]

    def commit(self, count: int) -> None:
        self.kept.append((self.clock.now, self.kept[-1][1] + count))


def collect(costs: Costs, fleet: Fleet, trajectories: int, seed: int = 0) -> Outcome:
    """Simulates a collection of so many trajectories until the last is committed."""
    run = _Collection(costs, fleet, trajectories, seed)
    run.clock.run(lambda: run.kept[-1][1] >= trajectories)
    begin, end = (next(one for one in run.kept if one[1] >= share * trajectories) for share in STEADY)
    busy = sum(machine.busy + machine.processors.busy for machine in run.machines)
    return Outcome(
        committed=run.kept[-1][1],
        pace=(end[1] - begin[1]) / (end[0] - begin[0]),
        again=run.again,
        deaths=run.deaths,
        processors=busy / (run.clock.now * fleet.machines * fleet.cores),
        log=run.log.busy / run.clock.now,
        asked=run.asked / run.clock.now,
        backlog=run.log.most,
    )
