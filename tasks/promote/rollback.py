"""Roll back to an earlier champion, from which the next training starts."""

from itertools import count

from schemas.failure import UsageError
from schemas.tables.policy import PolicyVersion
from schemas.tables.promotion import Promotion
from storage.lake import Lake
from tasks.promote.champion import decided_at, promote_last, promotion_lock
from tasks.promote.events import events
from tasks.shared.policies import champion, measured_ancestor, policy_row

NAME_IT = "To go further back, name the policy: `flywheel status` lists them."
NO_REASON = "no reason was given"


def roll_back(lake: Lake, to: str | None, reason: str, seen: str | None = None) -> Promotion:
    """Make an earlier champion the champion again, and record it.

    Args:
        lake: the lake.
        to: an earlier champion; the previous one if not given.
        reason: the stated reason, for later readers.
        seen: the champion to replace; the current one if not given.

    Returns:
        The record; that of an interrupted rollback, if it is the newest event.

    Raises:
        UsageError: there is no such policy, it was never champion, or it is; or the champion is no
            longer the one that was seen.
    """
    with promotion_lock(lake) as late:
        if late is not None and late.decision == "rollback" and to in (None, late.champion):
            return late  # its process died between the record and its effect
        if seen is not None and (now := champion(lake).policy_version) != seen:
            raise UsageError(f"The champion changed from {seen} to {now}.", NAME_IT)
        event = _recorded(lake, *_ways(lake, to), reason or NO_REASON)
        promote_last(lake)
        return event


def _ways(lake: Lake, to: str | None) -> tuple[PolicyVersion, PolicyVersion]:
    """Return the policy to promote and the current champion."""
    now = champion(lake)
    target = policy_row(lake, to) if to is not None else before(lake, now)
    if target.policy_version == now.policy_version:
        raise UsageError(
            f"{now.policy_version} is the champion already.", "Name an earlier champion: `flywheel status`."
        )
    if target.status != "retired":
        hint = "Name one that did: `flywheel status` lists them."
        raise UsageError(f"{target.policy_version} was never champion (it is {target.status}).", hint)
    return target, now


def before(lake: Lake, now: PolicyVersion) -> PolicyVersion:
    """Return the policy that the champion replaced; raise UsageError for the first champion."""
    won = (one for one in reversed(events(lake)) if one.decision == "promote" and one.champion == now.policy_version)
    if (event := next(won, None)) is not None:
        return policy_row(lake, event.against)
    if now.parent is None:
        raise UsageError(f"{now.policy_version} is the first champion.")
    return measured_ancestor(lake, now.parent)


def _recorded(lake: Lake, target: PolicyVersion, now: PolicyVersion, reason: str) -> Promotion:
    for number in count():
        event = Promotion(
            event=f"rollback:{number:04d}",
            decision="rollback",
            policy_version=target.policy_version,
            against=now.policy_version,
            champion=target.policy_version,
            pairs=0,
            wins=0,
            losses=0,
            difference=None,
            low=None,
            high=None,
            llr=None,
            rule="{}",
            reason=reason,
            created_at=decided_at(lake),
        )
        if lake.append("promotions", [event]):
            return event
    raise AssertionError
