"""What was decided about who reigns, as the lake keeps it."""

from schemas.tables.policy import PolicyVersion
from schemas.tables.promotion import Promotion
from storage.lake import Lake
from tasks.shared.policies import policies


def events(lake: Lake) -> list[Promotion]:
    """All decisions, oldest first."""
    return sorted(lake.rows(Promotion), key=lambda one: (one.created_at, one.event))


def event_of(lake: Lake, event: str) -> Promotion | None:
    """A decision by its key, or None."""
    return next(iter(lake.rows(Promotion, {"event": event})), None)


def abandoned(lake: Lake, policy: PolicyVersion) -> str | None:
    """The nearest policy that this one was trained from and that was rolled back since; None if there is none."""
    rows, fallen = policies(lake), rolled_back(lake)
    row = rows.get(policy.parent or "")
    while row is not None and row.status != "champion":
        if row.policy_version in fallen:
            return row.policy_version
        row = rows.get(row.parent or "")
    return None


def rolled_back(lake: Lake) -> set[str]:
    """Policies that reigned, were rolled back, and have not come to reign again."""
    found = set[str]()
    for one in events(lake):
        found.discard(one.champion)
        if one.decision == "rollback":
            found.add(one.against)
    return found
