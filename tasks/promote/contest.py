"""Compare a challenger with the champion on the suite's held-out seeds, look by look.

Evaluation, promotion and restarts use the same looks. The evaluation measures until one of them decides, the promotion
reads the decision from the stored outcomes, and a restart finds it again, however many seeds were measured meanwhile.
"""

import json
import math
from collections.abc import Sequence

from curation.intervals import paired
from curation.promotion import PromotionDecision, PromotionRule, better, look, not_worse, without_test
from models.soundness import unsound_weight
from schemas.config import Config
from schemas.tables.evaluation import Evaluation
from schemas.tables.policy import PolicyVersion
from schemas.tables.trajectory import SPLIT_STARTS
from storage.lake import Lake
from tasks.shared.policies import champion, measured_ancestor
from tasks.shared.weights import checkpoint_folder

SUITE = "suite"


def rule_of(config: Config, candidate: PolicyVersion) -> PromotionRule:
    """Return the rule for a challenger: not to be worse, or, for a mere reproduction, to be better."""
    chosen = config.promote
    if candidate.repeats is not None:
        return better(chosen.resolution, chosen.alpha, chosen.beta)
    return not_worse(chosen.tolerance, chosen.resolution, chosen.alpha, chosen.beta, chosen.undecided)


def interim_looks(config: Config) -> list[int]:
    """Return the seeds per task at each look."""
    most, between = config.evaluate.seeds, config.promote.look_seeds
    return [*range(between, most, between), most]


def opponent(lake: Lake, candidate: PolicyVersion) -> PolicyVersion:
    """Return the champion to compare a challenger with."""
    incumbent = champion(lake)
    if incumbent.policy_version != candidate.policy_version:
        return incumbent
    return measured_ancestor(lake, candidate.parent)  # one of its stages is repeated


def looked_at(
    config: Config, lake: Lake, candidate: PolicyVersion, against: PolicyVersion, seeds: int
) -> PromotionDecision | None:
    """Return the decision at a look of so many seeds per task; None where the test continues."""
    new, old = (outcomes_of(lake, row.policy_version, seeds) for row in (candidate, against))
    return look(rule_of(config, candidate), paired(new, old), seeds == config.evaluate.seeds)


def decided(
    config: Config, lake: Lake, candidate: PolicyVersion, against: PolicyVersion, complete: bool = False
) -> PromotionDecision | None:
    """Return the decision of the first look that decides, from stored outcomes.

    Args:
        config: its looks and their rule.
        lake: the lake with the outcomes.
        candidate: the challenger.
        against: its opponent.
        complete: whether no further outcomes will come.

    Returns:
        None where only one of the two was measured on the seeds of a look, unless `complete` is set.
    """
    for seeds in interim_looks(config):
        if not complete and not _both_measured(lake, candidate, against, seeds):
            return None
        found = looked_at(config, lake, candidate, against, seeds)
        if found is not None:
            return found
    raise AssertionError("the last look decides")


def _both_measured(lake: Lake, candidate: PolicyVersion, against: PolicyVersion, seeds: int) -> bool:
    """Whether a look has both policies on the same seeds of each task that both have; neither stopped earlier."""
    new, old = (
        {(one.task_id, one.seed) for one in _rows(lake, row.policy_version, seeds)} for row in (candidate, against)
    )
    shared = {task for task, _ in new} & {task for task, _ in old}
    return bool(shared) and not any(task in shared for task, _ in new ^ old)


def outcomes_of(lake: Lake, version: str, seeds: int) -> dict[tuple[str, int], bool]:
    """Return a policy's success by (task, seed) on the suite's first held-out seeds, without environment failures."""
    rows = _rows(lake, version, seeds)
    return {(row.task_id, row.seed): row.success for row in rows if row.success is not None}


def _rows(lake: Lake, version: str, seeds: int) -> list[Evaluation]:
    rows = lake.rows(Evaluation, {"policy_version": version, "suite": SUITE})
    return [row for row in rows if row.seed < SPLIT_STARTS["validation"] + seeds]


def broken_making(lake: Lake, row: PolicyVersion) -> PromotionDecision | None:
    """Return the rejection of a policy with broken weights or a broken training loss; None where both are numbers."""
    if (at := unsound_weight(checkpoint_folder(lake, row.policy_version))) is not None:
        return without_test("reject", f"broken: its weights are no numbers, or huge ({at})")
    loss = json.loads(row.metrics or "{}").get("loss")
    if isinstance(loss, float) and not math.isfinite(loss):
        return without_test("reject", f"broken: the loss of its training is {loss}")
    return None


def broken_acting(config: Config, lake: Lake, row: PolicyVersion, against: PolicyVersion) -> PromotionDecision | None:
    """Return the rejection of a policy with too many replies without an action, or too slow ones; else None.

    A beginner writes little that parses, and an untrained champion nothing: a policy that is no worse than the champion
    in this respect is not broken.
    """
    rows = _acted(lake, row)
    if not rows:
        return None
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
    """Return a policy's evaluations on the suite with a known format of the last reply."""
    found = lake.rows(Evaluation, {"policy_version": row.policy_version, "suite": SUITE})
    return [one for one in found if one.success is not None and one.unparsable is not None]


def _unparsable(rows: Sequence[Evaluation]) -> float:
    """Return the share that ended in a reply without an action; 0 of none."""
    return sum(bool(one.unparsable) for one in rows) / max(1, len(rows))
