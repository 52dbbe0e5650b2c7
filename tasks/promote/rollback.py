"""The way back: a policy that reigned before reigns again, and what is trained next begins from it."""

from itertools import count

from schemas.failure import UsageError
from schemas.table import utc_now
from schemas.tables.policy import PolicyVersion
from schemas.tables.promotion import Promotion
from storage.lake import Lake
from tasks.promote.events import events
from tasks.promote.promote import take_effect
from tasks.shared.policies import champion, measured_ancestor, policy_row

NO_REASON = "no reason was given"


def roll_back(lake: Lake, to: str | None, reason: str) -> Promotion:
    """Makes an earlier champion the champion again and records it.

    Args:
        lake: whose champion.
        to: a policy that reigned before; the one before the champion if not given.
        reason: why, for whoever reads it later.

    Returns:
        The record; that of a rollback which a kill cut short, if that is the last thing that was decided.

    Raises:
        UsageError: there is no such policy, it never reigned, or it reigns.
    """
    last = next(reversed(events(lake)), None)
    if last is not None and last.decision != "rollback":
        take_effect(lake, last)
    now = champion(lake)
    if last is not None and last.decision == "rollback" and last.champion != now.policy_version:
        return _crown(lake, last)  # its process died between the record and its effect
    target = policy_row(lake, to) if to is not None else _before(lake, now)
    if target.policy_version == now.policy_version:
        raise UsageError(f"{now.policy_version} reigns already.", "Name an earlier champion: `flywheel status`.")
    if target.status != "retired":
        hint = "Name one that did: `flywheel status` lists them."
        raise UsageError(f"{target.policy_version} never reigned (it is {target.status}).", hint)
    return _crown(lake, _recorded(lake, target, now, reason or NO_REASON))


def _before(lake: Lake, now: PolicyVersion) -> PolicyVersion:
    """Whom the champion replaced."""
    won = (one for one in reversed(events(lake)) if one.decision == "promote" and one.champion == now.policy_version)
    if (event := next(won, None)) is not None:
        return policy_row(lake, event.against)
    if now.parent is None:
        raise UsageError(f"{now.policy_version} is the first champion: none reigned before it.")
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
            created_at=utc_now(),
        )
        if lake.append("promotions", [event]):
            return event
    raise AssertionError


def _crown(lake: Lake, event: Promotion) -> Promotion:
    rows = [policy_row(lake, event.against), policy_row(lake, event.champion)]
    changed = {event.against: "retired", event.champion: "champion"}
    lake.upsert("policies", [row.model_copy(update={"status": changed[row.policy_version]}) for row in rows])
    return event
