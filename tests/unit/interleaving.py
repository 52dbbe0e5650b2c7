"""Runs processes that share an object store in every order of their calls, one call at a time."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.objects import RemoteStore
from storage.patience import StoreRetry

PLACE = "memory://lake"
Process = Callable[[RemoteStore], object]


class Files:
    """The calls of fsspec that a remote store makes, on a dict; each is one step of one process."""

    def __init__(self, turns: "Turns", lost: bool = False) -> None:
        self.there: dict[str, bytes] = {}
        self._turns, self._lost = turns, lost

    def _strip_protocol(self, place: str) -> str:
        return place.removeprefix("memory://")

    def invalidate_cache(self) -> None:
        """Has nothing to forget."""

    def pipe_file(self, path: str, data: bytes, mode: str = "overwrite") -> None:
        self._turns.step()
        if mode == "create" and path in self.there:
            raise FileExistsError(path)
        self.there[path] = data

    def cat_file(self, path: str) -> bytes:
        self._turns.step()
        if path not in self.there:
            raise FileNotFoundError(path)
        return self.there[path]

    def rm_file(self, path: str) -> None:
        self._turns.step()
        if self.there.pop(path, None) is None:
            raise FileNotFoundError(path)
        if self._lost:
            raise ConnectionResetError(path)

    def cp_file(self, path: str, to: str) -> None:
        self.there[to] = self.cat_file(path)

    def exists(self, path: str) -> bool:
        self._turns.step()
        return path in self.there

    def find(self, path: str, detail: bool) -> dict[str, Any]:
        self._turns.step()
        below = {name: data for name, data in self.there.items() if name.startswith(f"{path}/") or name == path}
        return {name: {"size": len(data), "type": "file"} for name, data in below.items()}


@dataclass
class Turns:
    """Which process makes the next call: those of `plan` first, then whichever went last.

    Args:
        plan: a choice for each step, as a place among the processes that are not over.
    """

    plan: Sequence[int] = ()
    choices: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """For each step: what was chosen, of how many."""
    running: int = 0
    alive: list[int] = field(default_factory=list[int])
    waits: bool = False
    turn: threading.Condition = field(default_factory=threading.Condition)

    def step(self) -> None:
        """Waits until this process may make one more call; a thread that is none of them goes on."""
        if (own := process_number()) is None:
            return
        with self.turn:
            self._choose()
            self.turn.wait_for(lambda: self.running == own)

    def wait(self, _: float = 0.0) -> None:
        """Lets another process go on, in place of `time.sleep`."""
        self.waits = True
        self.step()

    def end(self, own: int) -> None:
        with self.turn:
            self.alive.remove(own)
            if self.alive:
                self._choose()

    def _choose(self) -> None:
        """Of those alive the one that went last comes first; where it waits, the one after it."""
        at = self.alive.index(self.running) if self.running in self.alive else 0
        order = self.alive[at:] + self.alive[:at]
        if self.waits and len(order) > 1:
            order = order[1:]
        number = len(self.choices)
        chosen = self.plan[number] if number < len(self.plan) else 0
        self.choices.append((chosen, len(order)))
        self.running, self.waits = order[chosen], False
        self.turn.notify_all()


_process = threading.local()


def process_number() -> int | None:
    """Which of the processes this thread is; None for another thread."""
    return getattr(_process, "number", None)


def every_order(
    processes: Callable[[Turns], Sequence[Process]],
    most_switches: int,
    before: dict[str, bytes] | None = None,
    lost: bool = False,
) -> Iterator[tuple[list[Any], dict[str, bytes]]]:
    """What each process returned or raised, and the files that are left, for each order of their calls.

    Args:
        processes: makes them; each gets a store of its own at the one place.
        most_switches: how often another process goes on than the one that would, at most.
        before: the files at the place.
        lost: lose the answer to each deletion that took effect, so that the store makes it again.
    """
    plan: list[int] | None = []
    while plan is not None:
        turns = Turns(plan)
        yield _run(turns, processes(turns), before or {}, lost)
        plan = _next(turns.choices, most_switches)


def _run(
    turns: Turns, processes: Sequence[Process], before: dict[str, bytes], lost: bool
) -> tuple[list[Any], dict[str, bytes]]:
    files, found = Files(turns, lost), list[Any](None for _ in processes)
    files.there = {f"lake/{name}": data for name, data in before.items()}
    turns.alive = list(range(len(processes)))
    ready = threading.Barrier(len(processes) + 1)

    def run(number: int) -> None:
        _process.number = number
        patience = StoreRetry("s3://lake")
        patience.allow(60)
        ready.wait()
        with turns.turn:
            turns.turn.wait_for(lambda: turns.running == number)
        try:
            found[number] = processes[number](RemoteStore(PLACE, files, patience))  # type: ignore[arg-type]
        except Exception as error:
            found[number] = error
        finally:
            turns.end(number)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in turns.alive]
    for thread in threads:
        thread.start()
    ready.wait()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), f"a process hangs after {turns.choices}"
    return found, {name.removeprefix("lake/"): data for name, data in files.there.items()}


def _next(choices: Sequence[tuple[int, int]], most_switches: int) -> list[int] | None:
    """The plan after the one that made these choices; None after the last."""
    for at in range(len(choices) - 1, -1, -1):
        chosen, of = choices[at]
        if chosen + 1 < of and sum(1 for one, _ in choices[:at] if one) < most_switches:
            return [one for one, _ in choices[:at]] + [chosen + 1]
    return None
