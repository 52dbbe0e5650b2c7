"""Change the champion under a lock, so that two processes cannot promote at once.

The log of promotions decides; the policies' statuses follow it. The next change first repairs the statuses that a kill
left behind, two champions at once included.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from schemas.table import utc_now
from schemas.tables.policy import Status
from schemas.tables.promotion import Promotion
from storage.lake import Lake
from tasks.promote.events import events
from tasks.running.console import print_line
from tasks.shared.lock import locked
from tasks.shared.policies import policies

FOLDER = "control/deciding"
BECOMES: dict[str, Status] = {"hold": "held", "reject": "rejected"}


@contextmanager
def promotion_lock(lake: Lake) -> Iterator[Promotion | None]:
    """Hold the promotion lock, waiting for it; yield the promotion that had not taken effect yet, if any.

    Raises:
        UsageError: another process has held the lock for ten minutes; names it.
    """
    with locked(lake, FOLDER, wait=True):
        yield promote_last(lake)


def take_effect(lake: Lake, event: Promotion) -> None:
    """Set a challenger's status as decided, unless a later event such as a rollback changed it. Needs the lock."""
    row = policies(lake)[event.policy_version]
    if event.decision in BECOMES and row.status == "candidate":
        lake.upsert("policies", [row.model_copy(update={"status": BECOMES[event.decision]})])
    promote_last(lake)


def promote_last(lake: Lake) -> Promotion | None:
    """Make the policy of the newest promotion or rollback the only champion. Needs the lock.

    Returns:
        That event, or None if it had taken effect.
    """
    last = next((one for one in reversed(events(lake)) if one.decision in ("promote", "rollback")), None)
    rows = policies(lake)
    champions = [name for name, row in rows.items() if row.status == "champion"]
    if last is None or last.champion not in rows or champions == [last.champion]:
        return None
    if len(champions) > 1:
        print_line(
            f"{' and '.join(champions)} were champions at once; the newest promotion made {last.champion} champion"
        )
    retired = [rows[name].model_copy(update={"status": "retired"}) for name in champions if name != last.champion]
    lake.upsert("policies", [*retired, rows[last.champion].model_copy(update={"status": "champion"})])
    return last


def decided_at(lake: Lake) -> datetime:
    """Return the time of a new promotion event, which is later than all others even if clocks differ."""
    last = next(reversed(events(lake)), None)
    now = utc_now()
    return now if last is None else max(now, last.created_at + timedelta(microseconds=1))
