"""Decide whether a candidate or another challenger becomes champion, and roll back to an earlier champion."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Self

import pyarrow.dataset as pads

from curation.pictures import bits_of
from curation.promotion import PromotionDecision, without_test
from schemas.config import Config
from schemas.failure import UsageError
from schemas.table import Metrics
from schemas.tables.evaluation import Evaluation
from schemas.tables.policy import PolicyVersion
from schemas.tables.promotion import Promotion
from schemas.tables.stage import HEADLINE, StageResult
from schemas.tables.trajectory import SPLIT_STARTS
from storage.catalog import ask
from storage.lake import Lake
from tasks.evaluate import measure_challenger
from tasks.preflight.checks import require_held_out
from tasks.promote.contest import broken_acting, broken_making, decided, opponent, rule_of
from tasks.promote.events import abandoned, decided_at, event_of, promotion_lock
from tasks.running.boundary import boundary
from tasks.running.console import print_line
from tasks.running.run import Run, run_of
from tasks.running.run_page import DECIDED, HELD, emit_result
from tasks.running.stage import stage
from tasks.shared.general import GeneralCheck, general_checks
from tasks.shared.policies import champion, made_in, measured_ancestor, policy_row, promotions
from tasks.shared.weights import sweep_master_weights

DECISION_TEXTS = {"promote": "promoted", "hold": "held; the champion stays", "reject": "rejected; the champion stays"}
NUMBERS = {"decision", "pairs", "wins", "losses", "difference", "low", "high", "llr", "reason", "against", "champion"}
NAME_IT = "To go further back, name the policy: `flywheel status` lists them."
NO_REASON = "no reason was given"
NEAR = 8
"""Maximum number of differing bits, of 512, between hashes of screens that count as equal. Noise or a cursor flips up
to this many bits. In a test with 16 tasks of MiniWoB++, no two tasks ended on screens as similar as this."""


class PromotionResult(StageResult, extra="allow"):
    """Result of the stage `promote`: the champion after the decision, and fields of the row in `promotions`."""

    promoted: bool
    champion: str
    candidate: str = ""
    decision: str = ""
    """Decision about the candidate; empty if there is no candidate."""
    reason: str = "nothing was trained; the champion stays"

    @classmethod
    def of(cls, event: Promotion) -> Self:
        """Return the result of a decision."""
        promoted = event.decision == "promote"
        return cls(promoted=promoted, candidate=event.policy_version, **event.model_dump(include=NUMBERS))

    def __str__(self) -> str:
        return f"{DECISION_TEXTS[self.decision]}: {self.reason}" if self.decision else self.reason

    @property
    def event(self) -> tuple[str, Metrics]:
        """Returns the name and payload of the event of this decision."""
        kept = {"candidate", "against", "champion", "difference", "low", "high"}
        payload = self.model_dump(include=kept, exclude_unset=True)
        return DECIDED.get(self.decision, HELD), {HEADLINE: str(self), **payload}


@stage("promote")
def promote_candidate(run: Run, iteration: int) -> PromotionResult:
    """Promote the candidate if it passes the test against the current champion on the same seeds."""
    config, lake = run.config, run.lake
    candidate = made_in(lake, iteration)
    if candidate is None:
        return PromotionResult(promoted=False, champion=champion(lake).policy_version)
    return PromotionResult.of(challenge(config, lake, candidate))


def challenge(config: Config, lake: Lake, candidate: PolicyVersion) -> Promotion:
    """Decide on a measured candidate, and record the decision. The record itself makes the candidate champion.

    If the champion changed since the measurement, measure the candidate against the new champion first.
    """
    compared = set[str]()
    while (event := _decide(config, lake, candidate, compared)) is None:
        measure_challenger(config, lake, candidate)
    sweep_master_weights(lake, config.train.keep_policies)
    return event


def _decide(config: Config, lake: Lake, candidate: PolicyVersion, compared: set[str]) -> Promotion | None:
    """Decide on a candidate against the current champion.

    Args:
        config: config with the rule of promotion.
        lake: the lake.
        candidate: the challenger.
        compared: champions that the candidate was measured against. The current champion is added if it is missing.

    Returns:
        The decision, or None if the candidate must be measured against the current champion first.
    """
    key = f"challenge:{candidate.policy_version}"
    with promotion_lock(lake):
        event = event_of(lake, key)
        if event is None:
            against = opponent(lake, candidate)
            general = general_checks(lake).get(candidate.policy_version)
            found = _decision_without_test(config, lake, candidate, against, general)
            found = found or decided(config, lake, candidate, against, against.policy_version in compared)
            if found is None:
                compared.add(against.policy_version)
                return None
            if general is not None and general.text not in found.reason:
                found = replace(found, reason=f"{found.reason}; {general.text}")
            row = _row(
                lake,
                found,
                event=key,
                policy_version=candidate.policy_version,
                against=against.policy_version,
                champion=(candidate if found.promoted else against).policy_version,
                rule=rule_of(config, candidate).canonical,
            )
            lake.append("promotions", [row])
            event = event_of(lake, key)
            assert event is not None
        return event


def _row(lake: Lake, found: PromotionDecision, **fields: str) -> Promotion:
    """Return the row of a decision at the current time. The fields replace those of the decision."""
    numbers = asdict(found)
    return Promotion(**{"decision": numbers.pop("outcome"), **numbers, **fields, "created_at": decided_at(lake)})


def _decision_without_test(
    config: Config, lake: Lake, candidate: PolicyVersion, against: PolicyVersion, general: GeneralCheck | None
) -> PromotionDecision | None:
    """Return a decision against a candidate that does not depend on its success rate; None if there is no reason."""
    if broken := broken_making(lake, candidate) or broken_acting(config, lake, candidate, against):
        return broken
    if general is not None and general.forgets and config.general.on_drop == "reject":
        return without_test("reject", general.text)
    if fallen := abandoned(lake, candidate):
        return without_test("hold", f"it was trained from {fallen}, which was rolled back")
    leaking = leak(config, lake, candidate)
    return None if leaking is None else without_test("hold", leaking)


@boundary("evaluate")
def evaluate_challenger(config: Config, version: str) -> None:
    """Evaluate the policy on the held-out seeds of both suites, until its promotion is decided."""
    lake = run_of(config, create=False).lake
    measure_challenger(config, lake, policy_row(lake, version))


@boundary("challenge")
def challenge_champion(config: Config, version: str) -> None:
    """Promote, hold or reject the policy. The lake's first policy is the champion without a decision."""
    lake = run_of(config, create=False).lake
    row = policy_row(lake, version)
    if row.kind == "initial":
        print_line(f"{version}: the champion, because it is the lake's first policy")
        return
    result = PromotionResult.of(challenge(config, lake, row))
    print_line(f"{version}: {result}")
    emit_result(lake, "promote", result, {})


def roll_back(lake: Lake, to: str | None, reason: str, seen: str | None = None) -> Promotion:
    """Make an earlier champion the champion again, and record it.

    Args:
        lake: the lake.
        to: an earlier champion; the previous one if not given.
        reason: the reason, which is stored.
        seen: the champion that the caller expects; not checked if not given.

    Returns:
        The stored row.

    Raises:
        UsageError: the policy does not exist, was never champion, or is the champion already; or the champion is
            another policy than `seen`.
    """
    with promotion_lock(lake):
        if seen is not None and (now := champion(lake).policy_version) != seen:
            raise UsageError(f"The champion changed from {seen} to {now}.", NAME_IT)
        return _recorded(lake, *_rollback_policies(lake, to), reason or NO_REASON)


def _rollback_policies(lake: Lake, to: str | None) -> tuple[PolicyVersion, PolicyVersion]:
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
    """Return the policy that the champion replaced. Raise UsageError if it replaced no policy."""
    won = (
        one for one in reversed(promotions(lake)) if one.decision == "promote" and one.champion == now.policy_version
    )
    if (event := next(won, None)) is not None:
        return policy_row(lake, event.against)
    if now.parent is None:
        raise UsageError(f"{now.policy_version} is the first champion.")
    return measured_ancestor(lake, now.parent)


def _recorded(lake: Lake, target: PolicyVersion, now: PolicyVersion, reason: str) -> Promotion:
    for number in count():
        event = _row(
            lake,
            without_test("hold", reason),
            event=f"rollback:{number:04d}",
            decision="rollback",
            policy_version=target.policy_version,
            against=now.policy_version,
            champion=target.policy_version,
            rule="{}",
        )
        if lake.append("promotions", [event]):
            return event
    raise AssertionError


@dataclass(frozen=True, slots=True)
class Leak:
    """A held-out task whose last screens are also last screens of a trained task."""

    held_out: str
    trained: str
    screens: int
    """Number of last screens of the held-out task that the trained task shares."""
    of: int
    """Number of last screens of the held-out task."""


def same_screens(held_out: Mapping[str, Iterable[str]], trained: Iterable[tuple[str, str]], share: float) -> list[Leak]:
    """Return the held-out tasks that share many of their distinct last screens with one trained task.

    Args:
        held_out: difference hashes of the last screens of each held-out task, by task.
        trained: the task and hash of each last screen that was trained on.
        share: minimum share of the held-out task's distinct last screens, in (0, 1].
    """
    known = {
        task: {bits for one in hashes if (bits := _distinct_bits(one)) is not None} for task, hashes in held_out.items()
    }
    near: dict[tuple[str, str], set[int]] = {}
    for task, phash in trained:
        if (bits := _distinct_bits(phash)) is None:
            continue
        for own, screens in known.items():
            for screen in screens:
                if (screen ^ bits).bit_count() <= NEAR:
                    near.setdefault((own, task), set()).add(screen)
    return [
        Leak(own, task, len(found), len(known[own]))
        for (own, task), found in sorted(near.items())
        if len(found) >= share * len(known[own])
    ]


def _distinct_bits(phash: str) -> int | None:
    """Return the bits of a hash; None for another kind of hash, and for a uniform picture such as a blank page."""
    bits = bits_of(phash)
    return None if bits is None or bits.bit_count() <= NEAR else bits


SHARE = 0.5
"""Share of the last screens of a held-out task from which it counts as the same task as the trained task that shares
these screens."""


def leak(config: Config, lake: Lake, candidate: PolicyVersion) -> str | None:
    """Return the reason not to trust a candidate's evaluation: it was trained on held-out data. Else return None."""
    try:
        require_held_out(config, lake)
    except UsageError as error:
        return f"leakage: {error.problem}"
    pins = candidate.pins
    if not {"trajectories", "steps", "screenshots", "verdicts"} <= pins.keys():
        return None
    held = pads.field("seed") >= SPLIT_STARTS["validation"]
    rows = lake.read("trajectories", ["trajectory_id", "task_id", "seed"], held, pins["trajectories"]).to_pylist()
    if rows:
        one = min(rows, key=lambda row: row["trajectory_id"])
        return (
            f"leakage: {len(rows)} trajectories that it was trained from have held-out seeds, {one['trajectory_id']} "
            f"of {one['task_id']} seed {one['seed']} for one"
        )
    if config.promote.same_screens == "hold" and (copies := _shared_screens(lake, candidate)):
        named = ", ".join(f"{one.held_out} ({one.screens} of {one.of} in {one.trained})" for one in copies)
        return (
            f"leakage: held-out tasks are solved on the screens of trained ones: {named}; take the same task "
            "out of `suite.held_out` or of `suite.tasks`; if they only look alike, set `promote.same_screens=ignore`"
        )
    return None


def _shared_screens(lake: Lake, candidate: PolicyVersion) -> list[Leak]:
    """Return the held-out tasks that a candidate solves on screens of a trained task.

    Failures are left out, because a failure may end on a first screen that several tasks share.
    """
    ended: dict[str, set[str]] = {}
    for row in lake.rows(Evaluation, {"policy_version": candidate.policy_version, "suite": "held_out"}):
        if row.success and row.final_phash is not None:
            ended.setdefault(row.task_id, set()).add(row.final_phash)
    if not ended:
        return []
    trained = ask(lake, "last_screens", candidate.pins).to_pylist()
    return same_screens(ended, ((row["task_id"], row["phash"]) for row in trained), SHARE)
