"""Stage: champion or not."""

from curation.promotion import Decision, without_test
from schemas.config import Config
from schemas.metrics import Metrics
from schemas.tables.policy import PolicyVersion
from schemas.tables.promotion import Promotion
from storage.lake import Lake
from tasks.evaluate import measure_challenger
from tasks.promote.contest import broken_acting, broken_making, decided, opponent, rule_of
from tasks.promote.events import abandoned, event_of
from tasks.promote.leaks import leak
from tasks.promote.throne import decided_at, deciding, take_effect
from tasks.running.run import Run
from tasks.running.stage import stage
from tasks.shared.masters import sweep_masters
from tasks.shared.policies import candidate_of, champion

SAID = {"promote": "promoted", "hold": "held; the champion stays", "reject": "rejected; the champion stays"}
NUMBERS = ("decision", "pairs", "wins", "losses", "difference", "low", "high", "llr", "reason")


@stage("promote")
def promote_candidate(run: Run, iteration: int) -> Metrics:
    """The candidate is the next champion only if it holds against the present one on the same seeds."""
    config, lake = run.config, run.lake
    candidate = candidate_of(lake, iteration)
    if candidate is None:
        stays = champion(lake).policy_version
        return {"promoted": False, "champion": stays, "say": "nothing was trained; the champion stays"}
    return numbers_of(challenge(config, lake, candidate))


def challenge(config: Config, lake: Lake, candidate: PolicyVersion) -> Promotion:
    """Decides on a measured candidate, records the decision, lets it take effect.

    One at a time decides on a lake. Where another policy came to reign since the candidate was measured, it is measured
    against that one first.
    """
    compared = set[str]()
    while (event := _settled(config, lake, candidate, compared)) is None:
        measure_challenger(config, lake, candidate)
    sweep_masters(lake, config.train.keep_policies)
    return event


def numbers_of(event: Promotion) -> Metrics:
    """What the stage tells of a decision."""
    return {
        **{key: getattr(event, key) for key in NUMBERS},
        "promoted": event.decision == "promote",
        "candidate": event.policy_version,
        "against": event.against,
        "champion": event.champion,
        "say": f"{SAID[event.decision]}: {event.reason}",
    }


def _settled(config: Config, lake: Lake, candidate: PolicyVersion, compared: set[str]) -> Promotion | None:
    """The decision on a candidate, in effect; None where it is to be measured further against whoever reigns now.

    The record comes first: whoever is killed after it decides nothing anew.

    Args:
        config: its rule.
        lake: whose champion.
        candidate: who challenges.
        compared: whom it was measured against here, so that there is no more to measure; who is to be is added.
    """
    key = f"challenge:{candidate.policy_version}"
    with deciding(lake):
        event = event_of(lake, key)
        if event is None:
            against = opponent(lake, candidate)
            found = _hindrance(config, lake, candidate, against)
            found = found or decided(config, lake, candidate, against, against.policy_version in compared)
            if found is None:
                compared.add(against.policy_version)
                return None
            lake.append("promotions", [_record(config, lake, candidate, against, found)])
            event = event_of(lake, key)
            assert event is not None
        take_effect(lake, event)
        return event


def _record(config: Config, lake: Lake, candidate: PolicyVersion, against: PolicyVersion, found: Decision) -> Promotion:
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
        created_at=decided_at(lake),
    )


def _hindrance(config: Config, lake: Lake, candidate: PolicyVersion, against: PolicyVersion) -> Decision | None:
    """Why a candidate is not to be promoted however many it wins; None for no reason."""
    if broken := broken_making(lake, candidate) or broken_acting(config, lake, candidate, against):
        return broken
    if fallen := abandoned(lake, candidate):
        return without_test("hold", f"it was trained from {fallen}, which was rolled back")
    leaking = leak(config, lake, candidate)
    return None if leaking is None else without_test("hold", leaking)
