"""Check if the lake has enough new data since the last training, and request a retraining.

A check emits at most one event, and a Prefect server starts a retraining at this event (`apps.schedule.automations`).
Requests are stored in the lake, so several watchers make only one request for the same data. A further request follows
after the same amount of new data again, or after a failed retraining. An event names the policy that was trained last.
If an event is delivered twice, the second delivery has no effect once a newer policy exists.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from pydantic import BaseModel, ValidationError

from common.text import counted
from schemas.config import Config
from schemas.tables.policy import PolicyVersion
from storage.catalog import ask
from storage.lake import Lake
from tasks.running.boundary import flow_task
from tasks.running.budget import pause_of
from tasks.running.console import print_line
from tasks.running.run import run_of
from tasks.running.run_page import emit
from tasks.shared.lease import Owner
from tasks.shared.policies import champion_if_any, policies
from tasks.shared.status import verified

FILE = "control/asked.json"
"""File of the stored requests, among the lake's blobs."""
ANSWER = "control/answer.json"
"""File of the retraining that started after the request, if any."""
AFTER = "after"
"""Key of an event with the policy that was trained last when the event was emitted."""
NONE = "none"
"""Value of this key before any training."""
TRIES = 3
"""Maximum number of requests for the same data if retrainings fail."""


class TriggerCounts(BaseModel):
    """Requests since the last training, with the count at which each event was emitted."""

    since: str = ""
    counts: dict[str, float] = {}
    tries: int = 1
    """Number of requests."""


@dataclass(frozen=True, slots=True)
class Due:
    """Reason for a retraining: the number of new items, or the iteration of a drop, and a text."""

    count: int
    why: str


class RetrainProcess(Owner):
    """Process that runs a retraining."""

    over: bool = False


@contextmanager
def answering(config: Config) -> Iterator[None]:
    """Record the process of the enclosed retraining, so that watchers know if it still runs."""
    store = Lake.open(config.lake, create=False).blobs.store
    store.put(ANSWER, RetrainProcess.this().model_dump_json().encode())
    try:
        yield
    finally:
        store.put(ANSWER, RetrainProcess.this(over=True).model_dump_json().encode())


@flow_task("watch")
def watch_lake(config: Config) -> dict[str, Due]:
    """Emit the first due event and return all due events; none while the lake is paused or has no champion."""
    lake = run_of(config, create=False).lake
    if pause := pause_of(lake):
        print_line(pause.text)  # a paused lake ignores requests
        return {}
    if champion_if_any(lake) is None:
        print_line("watch: the lake has no champion yet")
        return {}
    last = last_trained(lake)
    asked = _open_requests(lake, last)
    found = due(config, lake, last, asked)
    first = next(iter(found), None)
    if first and emit(lake, first, {**asdict(found[first]), AFTER: asked.since or NONE}):
        counts = {**asked.counts, **{event: float(one.count) for event, one in found.items()}}
        lake.blobs.store.delete(ANSWER)
        lake.blobs.store.put(FILE, asked.model_copy(update={"counts": counts}).model_dump_json().encode())
    for event, one in found.items():
        print_line(f"watch: {event}: {one.why}")
    if not found:
        print_line(f"watch: nothing is due since {asked.since or 'the beginning'}")
    return found


def due(config: Config, lake: Lake, last: PolicyVersion | None, asked: TriggerCounts | None = None) -> dict[str, Due]:
    """Return the current reasons for a retraining, by event.

    Args:
        config: config with the limits (`[triggers]`).
        lake: the lake.
        last: the policy that was trained last.
        asked: earlier requests; read from the lake if not given.
    """
    asked, chosen = asked or _asked(lake, last), config.triggers
    steps, decisions = new_since(lake, last)
    found: dict[str, Due] = {}
    for event, new, enough, what in (
        ("flywheel.steps.enough", steps, chosen.steps, "new accepted step"),
        ("flywheel.decisions.enough", decisions, chosen.decisions, "new decision"),
    ):
        if enough and new - asked.counts.get(event, 0) >= enough:
            found[event] = Due(new, f"{counted(new, what)}, and {enough:,} are enough")
    if (drop := _drop(lake, last)) and chosen.success_drop and drop[0] >= chosen.success_drop:
        event, iteration = "flywheel.success.dropped", drop[1]
        if asked.counts.get(event) != iteration:
            found[event] = Due(iteration, f"success is {drop[0]:.2f} lower in iteration {iteration}")
    return found


def answered(config: Config, after: str) -> str | None:
    """Return the policy that was trained after the policy in an event; None if there is none.

    An event with a newer policy needs no retraining.
    """
    last = last_trained(Lake.open(config.lake, create=False))
    return last.policy_version if last and last.policy_version != after else None


def new_since(lake: Lake, last: PolicyVersion | None) -> tuple[int, int]:
    """Return the numbers of accepted steps and reviewers' decisions that the last training did not read."""
    pins = last.pins if last else {}
    steps, decisions = (
        _count(lake, query) - (_count(lake, query, pins) if last else 0)
        for query in ("accepted_steps", "decision_count")
    )
    return steps, decisions


def last_trained(lake: Lake) -> PolicyVersion | None:
    """Return the newest policy that was trained from data."""
    trained = [row for row in policies(lake).values() if row.pins and row.kind in ("iteration", "retrained")]
    return trained[-1] if trained else None


def _open_requests(lake: Lake, last: PolicyVersion | None) -> TriggerCounts:
    """Return the earlier requests; none if their retraining failed, for at most `TRIES` requests."""
    asked = _asked(lake, last)
    try:
        answer = RetrainProcess.model_validate_json(lake.blobs.store.get(ANSWER))
    except (FileNotFoundError, ValidationError):
        return asked
    if not asked.counts or not (answer.over or answer.gone):
        return asked
    print_line(f"watch: {counted(asked.tries, 'retraining')} failed; the page of `retrain` has the reason")
    return asked if asked.tries >= TRIES else TriggerCounts(since=asked.since, tries=asked.tries + 1)


def _asked(lake: Lake, last: PolicyVersion | None) -> TriggerCounts:
    since = last.policy_version if last else ""
    try:
        asked = TriggerCounts.model_validate_json(lake.blobs.store.get(FILE))
    except (FileNotFoundError, ValidationError):
        return TriggerCounts(since=since)
    return asked if asked.since == since else TriggerCounts(since=since)


def _count(lake: Lake, query: str, pins: dict[str, int] | None = None) -> int:
    return int(ask(lake, query, pins)["n"][0].as_py())


def _drop(lake: Lake, last: PolicyVersion | None) -> tuple[float, int] | None:
    """Return the drop of the policy's success in the newest iteration, and this iteration.

    Both success rates have the same mix of tasks. None if a training has read the iteration, or if there is no drop
    beyond chance.
    """
    own = [row for row in verified(lake) if row.kind == "policy" and row.iteration >= 0]
    rates = {row.iteration: row.fixed_mix for row in own if row.fixed_mix}
    if len(rates) < 2 or (last is not None and last.iteration >= max(rates)):
        return None
    before, now = list(rates.values())[-2:]
    return None if now.ci[1] >= before.ci[0] else (before.rate - now.rate, max(rates))
