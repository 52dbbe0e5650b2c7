"""Read and write the log of promotions and rollbacks, which determines the champion (`tasks.shared.policies`)."""

from collections.abc import Container, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from schemas.table import utc_now
from schemas.tables.policy import PolicyVersion
from schemas.tables.promotion import Promotion
from storage.lake import Lake
from tasks.shared.lease import lease
from tasks.shared.policies import ancestry, policies, promotions

LOCK = "control/deciding"
"""Folder of the lease on promotions."""
OUTCOMES = {"promote": "promoted", "hold": "held", "reject": "rejected"}
"""Printed outcomes of decisions."""
ROLLED_BACK = "rolled back"


def promotion_lock(lake: Lake) -> AbstractContextManager[None]:
    """Wait for the promotion lock and hold it, so that two processes cannot promote at once.

    Raises:
        UsageError: another process has held the lock for ten minutes. The message has this process.
    """
    return lease(lake, LOCK, wait=True)


def decided_at(lake: Lake) -> datetime:
    """Return the time of a new event. It is later than the times of all stored events, even if clocks differ."""
    last, now = next(reversed(promotions(lake)), None), utc_now()
    return now if last is None else max(now, last.created_at + timedelta(microseconds=1))


def event_of(lake: Lake, event: str) -> Promotion | None:
    """Return an event by its key, or None."""
    return next(iter(lake.rows(Promotion, {"event": event})), None)


def abandoned(lake: Lake, policy: PolicyVersion) -> str | None:
    """Return the nearest ancestor of a policy that was rolled back, or None. Ancestors of the champion are skipped."""
    rows, fallen = policies(lake), rolled_back(lake)
    of_champion = {
        name for row in rows.values() if row.status == "champion" for name in ancestry(rows, row.policy_version)
    }
    ways = ancestry(rows, policy.parent)
    return next((name for name in ways if name in fallen and name not in of_champion), None)


def rolled_back(lake: Lake) -> dict[str, Promotion]:
    """Return the policies whose last event is their rollback, each with this event, the newest last."""
    return _rolled_back(promotions(lake))


def _rolled_back(events: Iterable[Promotion]) -> dict[str, Promotion]:
    found: dict[str, Promotion] = {}
    for one in events:
        found.pop(one.champion, None)
        if one.decision == "rollback":
            found.pop(one.against, None)
            found[one.against] = one
    return found


def standing(policy: PolicyVersion, fallen: Container[str]) -> str:
    """Return the printed status of a policy: its stored status, or `rolled back` if it is among the `fallen`."""
    return ROLLED_BACK if policy.policy_version in fallen else policy.status


def outcomes(lake: Lake) -> dict[str, str]:
    """Return the printed outcome of each decided policy: promoted, held, rejected, or rolled back."""
    events = promotions(lake)
    found = {one.policy_version: OUTCOMES[one.decision] for one in events if one.decision in OUTCOMES}
    return found | dict.fromkeys(_rolled_back(events), ROLLED_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionEvent:
    """A decision about the champion. Its numbers are None in lakes that are older than the table `promotions`."""

    policy: str
    decision: str
    """Decision; in lakes that are older than the table `promotions`, the status of the challenger."""
    against: str | None = None
    champion: str | None = None
    pairs: int | None = None
    wins: int | None = None
    losses: int | None = None
    difference: float | None = None
    llr: float | None = None
    reason: str | None = None
    created_at: datetime
    ci: tuple[float, float] | None = None
    """95 % interval of the difference of success."""
    kind: str
    """`rollback`, or the kind of the policy."""


def as_dict(event: Promotion) -> dict[str, Any]:
    """Return a decision as JSON: the fields of `PromotionEvent` except its kind."""
    known = {"against", "champion", "pairs", "wins", "losses", "difference", "llr", "reason", "created_at"}
    interval = None if event.difference is None else (event.low, event.high)
    return {
        "policy": event.policy_version,
        "decision": event.decision,
        **event.model_dump(include=known),
        "ci": interval,
    }


def decisions(lake: Lake) -> list[PromotionEvent]:
    """Return all promotions and rollbacks, oldest first."""
    rows = policies(lake)
    events = {one.event: one for one in lake.rows(Promotion)}
    found = [
        PromotionEvent(**as_dict(one), kind="rollback" if one.decision == "rollback" else rows[one.policy_version].kind)
        for one in events.values()
    ]
    found += [
        PromotionEvent(policy=name, kind=row.kind, decision=row.status, created_at=row.created_at)
        for name, row in rows.items()
        if row.kind not in ("initial", "intermediate", "pretrained") and f"challenge:{name}" not in events
    ]
    return sorted(found, key=lambda one: one.created_at)
