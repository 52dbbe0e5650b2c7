"""Compare a challenger with the champion on the suite's held-out seeds, in several interim looks.

The evaluation measures more seeds until a look decides. The promotion finds the same decision from the stored outcomes,
because it uses the same looks. A restart also finds the same decision, even if more seeds were measured.
"""

import json
import math
from collections.abc import Sequence

from curation.intervals import paired
from curation.promotion import PromotionDecision, PromotionRule, better, look, not_worse, without_test
from models.safe import unsound_weight
from schemas.config import Config
from schemas.tables.evaluation import Evaluation
from schemas.tables.policy import PolicyVersion
from schemas.tables.trajectory import SPLIT_STARTS
from storage.lake import Lake
from tasks.shared.policies import champion, measured_ancestor
from tasks.shared.weights import checkpoint_folder

SUITE = "suite"


def rule_of(config: Config, candidate: PolicyVersion) -> PromotionRule:
    """Return the rule of promotion: a challenger must not be worse than the champion; a reproduction must be better."""
    chosen = config.promote
    if candidate.repeats is not None:
        return better(chosen.resolution, chosen.alpha, chosen.beta)
    return not_worse(chosen.tolerance, chosen.resolution, chosen.alpha, chosen.beta, chosen.undecided)


def interim_looks(config: Config) -> list[int]:
    """Return the number of seeds per task at each look."""
    most, between = config.evaluate.seeds, config.promote.look_seeds
    return [*range(between, most, between), most]


def opponent(lake: Lake, candidate: PolicyVersion) -> PolicyVersion:
    """Return the champion to compare a challenger with."""
    incumbent = champion(lake)
    if incumbent.policy_version != candidate.policy_version:
        return incumbent
    return measured_ancestor(lake, candidate.parent)  # a stage of its iteration is repeated


def looked_at(
    config: Config, lake: Lake, candidate: PolicyVersion, against: PolicyVersion, seeds: int
) -> PromotionDecision | None:
    """Return the decision at the look with this number of seeds per task; None if the test continues."""
    new, old = (outcomes_of(lake, row.policy_version, seeds) for row in (candidate, against))
    return look(rule_of(config, candidate), paired(new, old), seeds == config.evaluate.seeds)


def decided(
    config: Config, lake: Lake, candidate: PolicyVersion, against: PolicyVersion, complete: bool = False
) -> PromotionDecision | None:
    """Return the decision of the first look that decides, from stored outcomes.

    Args:
        config: config with the looks and the rule.
        lake: the lake with the outcomes.
        candidate: the challenger.
        against: opponent of the challenger.
        complete: whether no further outcomes will follow.

    Returns:
        The decision. None if a policy was not measured on the seeds of a look yet and `complete` is not set.
    """
    for seeds in interim_looks(config):
        if not complete and not _both_measured(lake, candidate, against, seeds):
            return None
        found = looked_at(config, lake, candidate, against, seeds)
        if found is not None:
            return found
    raise AssertionError("the last look decides")


def _both_measured(lake: Lake, candidate: PolicyVersion, against: PolicyVersion, seeds: int) -> bool:
    """Whether both policies were measured on the same seeds of a look, for each task that both have."""
    new, old = (
        {(one.task_id, one.seed) for one in _rows(lake, row.policy_version, seeds)} for row in (candidate, against)
    )
    shared = {task for task, _ in new} & {task for task, _ in old}
    return bool(shared) and not any(task in shared for task, _ in new ^ old)


def outcomes_of(lake: Lake, version: str, seeds: int) -> dict[tuple[str, int], bool]:
    """Return the success of a policy by task and seed, on the first held-out seeds, without environment failures."""
    rows = _rows(lake, version, seeds)
    return {(row.task_id, row.seed): row.success for row in rows if row.success is not None}


def _rows(lake: Lake, version: str, seeds: int) -> list[Evaluation]:
    rows = lake.rows(Evaluation, {"policy_version": version, "suite": SUITE})
    return [row for row in rows if row.seed < SPLIT_STARTS["validation"] + seeds]


def broken_making(lake: Lake, row: PolicyVersion) -> PromotionDecision | None:
    """Return the rejection of a policy whose weights or training loss are not finite numbers; else None."""
    if (at := unsound_weight(checkpoint_folder(lake, row.policy_version))) is not None:
        return without_test("reject", f"broken: its weights are not finite, or are huge ({at})")
    loss = json.loads(row.metrics or "{}").get("loss")
    if isinstance(loss, float) and not math.isfinite(loss):
        return without_test("reject", f"broken: the loss of its training is {loss}")
    return None


def broken_acting(config: Config, lake: Lake, row: PolicyVersion, against: PolicyVersion) -> PromotionDecision | None:
    """Return the rejection of a policy with too many replies without an action, or with too slow replies; else None.

    Replies of a barely trained policy seldom parse, and replies of an untrained champion never parse. A policy
    therefore counts as broken only if its replies parse less often than the champion's, or never.
    """
    rows = _acted(lake, row)
    if not rows:
        return None
    if (sentence := inaction(rows)) and config.promote.unparsable < 1:
        fix = "check `policy.family`" if config.policy.given else "it needs a longer training (`train.steps_first`)"
        return without_test("reject", f"broken: {sentence}; {fix}")
    share = _unparsable(rows)
    if share > config.promote.unparsable and share > _unparsable(_acted(lake, against)):
        most = f"`promote.unparsable` is {config.promote.unparsable:g}"
        return without_test(
            "reject", f"broken: {share:.0%} of its trajectories end in a reply without an action; {most}"
        )
    steps = sum(one.n_steps for one in rows)
    pace = sum((one.think_ms or 0.0) * one.n_steps for one in rows) / 1000 / max(1, steps)
    if config.promote.step_s is not None and pace > config.promote.step_s:
        most = f"`promote.step_s` is {config.promote.step_s:g}"
        return without_test("reject", f"broken: it takes {pace:.2f} s to reply; {most}")
    return None


def _acted(lake: Lake, row: PolicyVersion) -> list[Evaluation]:
    """Return the evaluations of a policy on the suite that record whether the last reply had an action."""
    found = lake.rows(Evaluation, {"policy_version": row.policy_version, "suite": SUITE})
    return [one for one in found if one.success is not None and one.unparsable is not None]


def inaction(rows: Sequence[Evaluation]) -> str:
    """Return a sentence if every trajectory failed at a reply without an action; else an empty text."""
    ended = [row for row in rows if row.success is not None and row.unparsable is not None]
    if not ended or not all(row.unparsable and not row.success for row in ended):
        return ""
    first = min(ended, key=lambda row: (row.task_id, row.seed)).unread
    quoted = "" if first is None else f"; the first: {first!r}"
    return f"{len(ended)} of {len(ended)} trajectories ended in a reply without an action{quoted}"


def _unparsable(rows: Sequence[Evaluation]) -> float:
    """Return the share of evaluations that ended in a reply without an action; 0 if there are none."""
    return sum(bool(one.unparsable) for one in rows) / max(1, len(rows))
