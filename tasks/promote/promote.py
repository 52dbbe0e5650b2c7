"""Stage: decide whether the candidate becomes champion."""

from curation.promotion import PromotionDecision, without_test
from schemas.config import Config
from schemas.table import Metrics
from schemas.tables.policy import PolicyVersion
from schemas.tables.promotion import Promotion
from storage.lake import Lake
from tasks.evaluate import measure_challenger
from tasks.promote.champion import decided_at, promotion_lock, take_effect
from tasks.promote.contest import broken_acting, broken_making, decided, opponent, rule_of
from tasks.promote.events import abandoned, event_of
from tasks.promote.leaks import leak
from tasks.running.run import Run
from tasks.running.stage import stage
from tasks.shared.master_weights import sweep_master_weights
from tasks.shared.policies import candidate_of, champion

DECISION_TEXTS = {"promote": "promoted", "hold": "held; the champion stays", "reject": "rejected; the champion stays"}
NUMBERS = ("decision", "pairs", "wins", "losses", "difference", "low", "high", "llr", "reason")


@stage("promote")
def promote_candidate(run: Run, iteration: int) -> Metrics:
    """Promote the candidate only if it holds against the current champion on the same seeds."""
    config, lake = run.config, run.lake
    candidate = candidate_of(lake, iteration)
    if candidate is None:
        stays = champion(lake).policy_version
        return {"promoted": False, "champion": stays, "say": "nothing was trained; the champion stays"}
    return numbers_of(challenge(config, lake, candidate))


def challenge(config: Config, lake: Lake, candidate: PolicyVersion) -> Promotion:
    """Decide on a measured candidate, record the decision and make it take effect.

    If the champion changed since the candidate was measured, measure it against the new one first.
    """
    compared = set[str]()
    while (event := _settled(config, lake, candidate, compared)) is None:
        measure_challenger(config, lake, candidate)
    sweep_master_weights(lake, config.train.keep_policies)
    return event


def numbers_of(event: Promotion) -> Metrics:
    """Return the stage's metrics of a decision."""
    return {
        **{key: getattr(event, key) for key in NUMBERS},
        "promoted": event.decision == "promote",
        "candidate": event.policy_version,
        "against": event.against,
        "champion": event.champion,
        "say": f"{DECISION_TEXTS[event.decision]}: {event.reason}",
    }


def _settled(config: Config, lake: Lake, candidate: PolicyVersion, compared: set[str]) -> Promotion | None:
    """Decide on a candidate against the current champion.

    The event is written before it takes effect, so a kill in between repeats no decision.

    Args:
        config: holds the promotion rule.
        lake: the lake.
        candidate: the challenger.
        compared: champions that the candidate was measured against; the current one is added if it is missing.

    Returns:
        The event, in effect, or None if the candidate must be measured against the current champion first.
    """
    key = f"challenge:{candidate.policy_version}"
    with promotion_lock(lake):
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


def _record(
    config: Config, lake: Lake, candidate: PolicyVersion, against: PolicyVersion, found: PromotionDecision
) -> Promotion:
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


def _hindrance(
    config: Config, lake: Lake, candidate: PolicyVersion, against: PolicyVersion
) -> PromotionDecision | None:
    """Return a reason against the promotion of a candidate that does not depend on its wins; None for no reason."""
    if broken := broken_making(lake, candidate) or broken_acting(config, lake, candidate, against):
        return broken
    if fallen := abandoned(lake, candidate):
        return without_test("hold", f"it was trained from {fallen}, which was rolled back")
    leaking = leak(config, lake, candidate)
    return None if leaking is None else without_test("hold", leaking)
