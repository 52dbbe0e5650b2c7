"""Sort trajectories by the expected value of a reviewer's label, each with the reason.

The order is one query of the lake (`storage/queries/queue.sql`). The answer is cached briefly, so that pages do not
wait for it. A page shows the cached order without trajectories that were decided since; new decisions are read each
time. If the lake has changed, a background thread renews the order. Concurrent reviewers are spread over trajectories
of similar value.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from apps.desk.openings import Openings
from schemas.failure import StoreUnreachable
from schemas.tables.task import short_names
from storage.catalog import answers
from storage.lake import Lake

KEPT = 1000
"""Number of places in a cached order; a page beyond them is queried separately."""
AGED_S = 5.0
"""Age in seconds after which an order is renewed, if the lake has changed."""
NEAR = 0.8
"""Minimum share of the first value for which trajectories count as similar, so that each reviewer begins with another
one."""
_ORDERED_BY = ("trajectories", "verdicts", "reviews", "curriculum")


class _Rated(BaseModel):
    model_config = ConfigDict(frozen=True)

    trajectory_id: str
    iteration: int
    task_id: str
    instruction: str
    policy: str
    policy_version: str
    success: bool | None
    """None if no verdict on the end exists."""
    n_steps: int
    worth: float
    why: list[str]


class Rated(_Rated):
    """The expected value of a label on a trajectory, and the reason."""

    error_step: int | None

    @property
    def step(self) -> int:
        """Returns the step to review first: the step of the error, else a failure's last step, else the first step."""
        return self.error_step if self.error_step is not None else 0 if self.success else self.n_steps - 1


class QueueEntry(_Rated):
    """One trajectory in the queue."""

    task: str
    step: int
    """The step to review first: the step of the error, if known."""
    screenshot: str | None = None
    action: str | None = None
    width: int = 1
    height: int = 1
    open_with: str = ""
    """Name of another reviewer who has the trajectory open."""


@dataclass(slots=True)
class _Order:
    rows: list[Rated]
    versions: dict[str, int | None]
    asked_at: float


class Queue:
    """The queue of one lake; safe to share between threads.

    Args:
        lake: the lake to query.
        forgetting: factor of a label's value one iteration later.
        openings: the active reviewers and their open items.
    """

    def __init__(self, lake: Lake, forgetting: float, openings: Openings | None = None) -> None:
        self._lake, self._forgetting = lake, forgetting
        self.openings = openings or Openings()
        self._orders: dict[tuple[int | None, str | None], _Order] = {}
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._renewing: set[tuple[int | None, str | None]] = set()

    def places(
        self, limit: int, offset: int = 0, task: str | None = None, iteration: int | None = None, person: str = ""
    ) -> list[QueueEntry]:
        """Returns the `limit` places after the first `offset`, in a reviewer's order; only of one task or iteration, if
        given."""
        number, elsewhere = self._of(person)
        order = self._order(iteration, task)
        rows = spread(self._left(order), number, elsewhere)[offset : offset + limit]
        if len(rows) < limit and len(order.rows) == KEPT:
            rows = self._ask(limit, offset, iteration, task)
        return self._entries(rows, elsewhere)

    def send(self, position: int, by: int, person: str) -> tuple[int, QueueEntry] | None:
        """Opens the first place from a position on, or backwards if `by` is -1, that no other reviewer has open.

        If all places are open, the first one is opened. The place counts as open from now on, so that two reviewers who
        continue at the same time get different places.

        Returns:
            The position and the entry; None if there is no place.
        """
        with self._sending:
            enough = 1 + len(self.openings.with_others(person))
            first = max(0, position + 1 - enough) if by < 0 else position
            found = list(
                enumerate(self.places(position + 1 - first if by < 0 else enough, first, person=person), first)
            )
            if by < 0:
                found.reverse()
            chosen = next((one for one in found if not one[1].open_with), found[0] if found else None)
            if chosen:
                self.openings.open(person, chosen[1].trajectory_id)
            return chosen

    def neighbour(self, name: str, by: int, position: int, person: str = "") -> int:
        """Finds the position of the trajectory after (`by` 1) or before (-1) another one that was at `position` when it
        was opened.

        The order may have been renewed since, and a decided trajectory leaves the order, so that the next one moves to
        its place.
        """
        rows = spread(self._left(self._order(None, None)), *self._of(person))
        now = next((at for at, row in enumerate(rows) if row.trajectory_id == name), None)
        return position + min(by, 0) if now is None else now + by

    def _left(self, order: _Order) -> list[Rated]:
        done = looked_at(self._lake)
        return [row for row in order.rows if row.trajectory_id not in done]

    def _of(self, person: str) -> tuple[int, dict[str, str]]:
        return self.openings.number(person), self.openings.with_others(person)

    def _order(self, iteration: int | None, task: str | None) -> _Order:
        key = (iteration, task)
        order = self._orders.get(key)
        if order is None:
            return self._renew(key)
        if time.monotonic() - order.asked_at > AGED_S and order.versions != self._versions():
            with self._lock:
                first = key not in self._renewing
                self._renewing.add(key)
            if first:
                threading.Thread(target=self._renew_if_there, args=(key,), name="queue", daemon=True).start()
        return order

    def _renew_if_there(self, key: tuple[int | None, str | None]) -> None:
        with suppress(StoreUnreachable):  # the next request gets the error, or renews the order
            self._renew(key)

    def _renew(self, key: tuple[int | None, str | None]) -> _Order:
        try:
            versions, now = self._versions(), time.monotonic()
            order = _Order(self._ask(KEPT, 0, *key), versions, now)
            with self._lock:
                if len(self._orders) > 64:
                    self._orders.clear()
                self._orders[key] = order
            return order
        finally:
            with self._lock:
                self._renewing.discard(key)

    def _ask(self, limit: int, offset: int, iteration: int | None, task: str | None) -> list[Rated]:
        of, halved = self._lake, self._forgetting
        return answers(
            of, Rated, "queue", limit=limit, offset=offset, iteration=iteration, task=task, forgetting=halved
        )

    def _versions(self) -> dict[str, int | None]:
        return {name: self._lake.version(name) for name in _ORDERED_BY}

    def _entries(self, rows: list[Rated], elsewhere: Mapping[str, str]) -> list[QueueEntry]:
        names = short_names(row.task_id for row in rows)
        where = {
            "iteration": sorted({row.iteration for row in rows}),
            "trajectory_id": [row.trajectory_id for row in rows],
        }
        columns = ["trajectory_id", "step", "screenshot", "actions", "screen_width", "screen_height"]
        steps = self._lake.read("steps", columns, where).to_pylist() if rows else []
        by_place = {(one["trajectory_id"], one["step"]): one for one in steps}
        places: list[QueueEntry] = []
        for row in rows:
            step = by_place.get((row.trajectory_id, row.step)) or by_place.get((row.trajectory_id, 0))
            fields: dict[str, Any] = row.model_dump(exclude={"error_step"})
            fields |= {"task": names[row.task_id], "open_with": elsewhere.get(row.trajectory_id, "")}
            if step:
                size = {"width": step["screen_width"], "height": step["screen_height"]}
                fields |= {"screenshot": step["screenshot"], "action": next(iter(step["actions"]), None), **size}
            places.append(QueueEntry(**fields, step=step["step"] if step else 0))
        return places


def spread(rows: Sequence[Rated], number: int, elsewhere: Mapping[str, str]) -> list[Rated]:
    """Reorders rows for the reviewer with this index. Each reviewer begins at another of the first rows of similar
    value; rows that others have open come last among them."""
    first = next((row.worth for row in rows), 0.0)
    end = next((at for at, row in enumerate(rows) if row.worth < NEAR * first), len(rows))
    near = [row for row in rows[:end] if row.trajectory_id not in elsewhere]
    begin = number % max(1, len(near))
    taken = [row for row in rows[:end] if row.trajectory_id in elsewhere]
    return [*near[begin:], *near[:begin], *taken, *rows[end:]]


def looked_at(lake: Lake) -> set[str]:
    """Returns the trajectories with a reviewer's valid decision other than a note."""
    rows = lake.read("reviews", ["review_id", "trajectory_id", "decision", "undoes"]).to_pylist()
    undone = {row["undoes"] for row in rows}
    held = (row for row in rows if row["review_id"] not in undone and row["decision"] not in ("undo", "note"))
    return {row["trajectory_id"] for row in held}
