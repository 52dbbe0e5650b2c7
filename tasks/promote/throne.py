"""Who reigns is decided and changed by one process at a time: two at once would crown two, or one whom nobody compared.

The decisions are the truth, the policies' statuses follow them: the newest decision that crowned a policy says who
reigns, so whatever a kill cut short, and a lake that was left with two champions, is put right before the next one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from schemas.table import utc_now
from schemas.tables.policy import Status
from schemas.tables.promotion import Promotion
from storage.lake import Lake
from tasks.promote.events import events
from tasks.running.console import say
from tasks.shared.holding import holding
from tasks.shared.policies import policies

FOLDER = "control/deciding"
BECOMES: dict[str, Status] = {"hold": "held", "reject": "rejected"}


@contextmanager
def deciding(lake: Lake) -> Iterator[Promotion | None]:
    """Keeps others from deciding within, and waits for whoever does; yields the decision that was not in effect yet.

    Raises:
        UsageError: another process decides, and has not ended after ten minutes; names it.
    """
    with holding(lake, FOLDER, wait=True):
        yield crown(lake)


def take_effect(lake: Lake, event: Promotion) -> None:
    """Gives a challenger the status that was decided; once: what came later, such as a rollback, is not undone. Within
    `deciding`."""
    row = policies(lake)[event.policy_version]
    if event.decision in BECOMES and row.status == "candidate":
        lake.upsert("policies", [row.model_copy(update={"status": BECOMES[event.decision]})])
    crown(lake)


def crown(lake: Lake) -> Promotion | None:
    """Lets the newest decision that crowned a policy take effect, and that policy alone reign; returns the decision
    where that was not so. Within `deciding`."""
    last = next((one for one in reversed(events(lake)) if one.decision in ("promote", "rollback")), None)
    rows = policies(lake)
    reigning = [name for name, row in rows.items() if row.status == "champion"]
    if last is None or last.champion not in rows or reigning == [last.champion]:
        return None
    if len(reigning) > 1:
        say(f"{' and '.join(reigning)} were champions at once; {last.champion} reigns, by the newest decision")
    retired = [rows[name].model_copy(update={"status": "retired"}) for name in reigning if name != last.champion]
    lake.upsert("policies", [*retired, rows[last.champion].model_copy(update={"status": "champion"})])
    return last


def decided_at(lake: Lake) -> datetime:
    """The time of a decision that is made now: after all others, whatever the clocks of other machines show."""
    last = next(reversed(events(lake)), None)
    now = utc_now()
    return now if last is None else max(now, last.created_at + timedelta(microseconds=1))
