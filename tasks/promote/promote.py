"""Stage: champion or not."""

from typing import Any

from curation.promotion import Decision, without_test
from schemas.config import Config
from schemas.table import utc_now
from schemas.tables.policy import PolicyVersion, Status
from schemas.tables.promotion import Promotion
from storage.lake import Lake
from tasks.promote.contest import broken_acting, broken_making, decided, opponent, rule_of
from tasks.promote.events import abandoned, event_of
from tasks.promote.leaks import leak
from tasks.running.run import Run
from tasks.running.stage import stage
from tasks.shared.masters import sweep_masters
from tasks.shared.policies import candidate_of, champion, policies

BECOMES: dict[str, Status] = {"promote": "champion", "hold": "held", "reject": "rejected"}
SAID = {"promote": "promoted", "hold": "held; the champion stays", "reject": "rejected; the champion stays"}
NUMBERS = ("decision", "pairs", "wins", "losses", "difference", "low", "high", "llr", "reason")


@stage("promote")
def promote_candidate(run: Run, iteration: int) -> dict[str, Any]:
    """The candidate is the next champion only if it holds against the present one on the same seeds."""
    config, lake = run.config, run.lake
    candidate = candidate_of(lake, iteration)
    if candidate is None:
        stays = champion(lake).policy_version
        return {"promoted": False, "champion": stays, "say": "nothing was trained; the champion stays"}
    return challenge(config, lake, candidate)


def challenge(config: Config, lake: Lake, candidate: PolicyVersion) -> dict[str, Any]:
    """Decides on a measured candidate, records the decision, lets it take effect; returns its numbers.

    The record comes first: whoever is killed after it decides nothing anew.
    """
    event = event_of(lake, f"challenge:{candidate.policy_version}")
    if event is None:
        lake.append("promotions", [_judged(config, lake, candidate)])
        event = event_of(lake, f"challenge:{candidate.policy_version}")
        assert event is not None
    take_effect(lake, event)
    sweep_masters(lake, config.train.keep_policies)
    return {
        **{key: getattr(event, key) for key in NUMBERS},
        "promoted": event.decision == "promote",
        "candidate": event.policy_version,
        "against": event.against,
        "champion": event.champion,
        "say": f"{SAID[event.decision]}: {event.reason}",
    }


def take_effect(lake: Lake, event: Promotion) -> None:
    """Gives a challenger the status that was decided; once: what came later, such as a rollback, is not undone."""
    rows = policies(lake)
    if (row := rows[event.policy_version]).status != "candidate":
        return
    changed = [row.model_copy(update={"status": BECOMES[event.decision]})]
    if event.decision == "promote":
        old = [one for one in rows.values() if one.status == "champion"]
        changed += [one.model_copy(update={"status": "retired"}) for one in old]
    lake.upsert("policies", changed)


def _judged(config: Config, lake: Lake, candidate: PolicyVersion) -> Promotion:
    against = opponent(lake, candidate)
    found = _hindrance(config, lake, candidate, against) or decided(config, lake, candidate, against)
    new, old = candidate.policy_version, against.policy_version
    return Promotion(
        event=f"challenge:{new}",
        decision=found.outcome,
        policy_version=new,
        against=old,
        champion=new if found.promoted else old,
        pairs=found.pairs,
        wins=found.wins,
        losses=found.losses,
        difference=found.difference,
        low=found.low,
        high=found.high,
        llr=found.llr,
        rule=rule_of(config, candidate).canonical,
        reason=found.reason,
        created_at=utc_now(),
    )


def _hindrance(config: Config, lake: Lake, candidate: PolicyVersion, against: PolicyVersion) -> Decision | None:
    """Why a candidate is not to be promoted however many it wins; None for no reason."""
    if broken := broken_making(lake, candidate) or broken_acting(config, lake, candidate, against):
        return broken
    if fallen := abandoned(lake, candidate):
        return without_test("hold", f"it was trained from {fallen}, which was rolled back")
    leaking = leak(config, lake, candidate)
    return None if leaking is None else without_test("hold", leaking)
