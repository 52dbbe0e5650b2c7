"""Find the data that each policy learned from, and measure the effect of reviewers' decisions.

A policy learned from the valid data in its pinned table versions. Its new decisions are the decisions that its parent
had not learned from. The effect is the policy's success minus its parent's, on the tasks of the new decisions and the
same held-out seeds. It includes the effect of all other new data.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.dataset as pads

from curation.intervals import paired_difference
from learning.algorithms.method import METHODS, DataSource
from schemas.failure import UsageError
from schemas.tables.policy import PolicyVersion
from storage.catalog import answers, ask
from storage.lake import Lake
from tasks.shared.policies import policies
from tasks.shared.status import EvaluationOutcome, outcomes_of, shared_outcomes

NEEDED = {"reviews", "trajectories", "steps", "verdicts", "annotations"}
"""Tables whose versions a policy must pin, so that the decisions that it learned from are known."""
WORDS = ("accept", "reject", "error_step")
"""Decisions about whole trajectories. They select the data of every method."""
ACTING = ("policy", "relay")
"""Kinds of trajectories with replies of the policy."""
REPLIES = ("correct", "override")
"""Decisions that are also preferences between two replies."""


@dataclass(frozen=True, slots=True)
class UsedDecision:
    """One decision that a training read."""

    review_id: str
    trajectory_id: str
    person: str
    decision: str
    step: int | None
    task_id: str
    state: str | None
    """State of a correction: `verified`, `unverified` or `refuted`."""
    replaces: bool | None
    """Whether a correction replaces the recorded step."""
    route: str
    """Route of the trajectory's data; empty if the trajectory was not filtered."""


@dataclass(frozen=True, slots=True)
class LearnedWorth:
    """Decisions that one policy learned from, and their effect, as JSON."""

    policy: str
    parent: str
    decisions: int
    new: int
    """Number of decisions that the policy's parent had not learned from."""
    by: dict[str, int]
    """Number of new decisions, by kind."""
    people: list[str]
    tasks: list[str]
    """Tasks of the new decisions."""
    before: float | None
    """Success of the parent on these tasks; None if it was not measured."""
    after: float | None
    difference: float | None
    """Success of the policy minus success of the parent, paired by task and seed."""
    ci: tuple[float, float] | None
    """95 % interval of the difference."""
    n: int


def decisions_of(lake: Lake, policy: PolicyVersion) -> list[UsedDecision]:
    """Return the decisions that the training of a policy read; empty if the policy does not pin all tables."""
    if not policy.pins.keys() >= NEEDED:
        return []
    found = answers(lake, UsedDecision, "people_decisions", policy.pins)
    source = _source(policy.method)
    only = json.loads(policy.config).get("filter", {}).get("corrections") == "verified"
    return [one for one in found if _read(one, source, only)]


def read_by(
    lake: Lake, method: str, iteration: int, pins: Mapping[str, int], perceives: bool, watches: bool = False
) -> set[str]:
    """Return the ids of the trajectories whose data a training reads.

    Depending on the method, a training reads groups or the policy's trajectories of its iteration, pairs, or all routed
    data. Stored successes that were added to a group are not included.

    Args:
        lake: the lake.
        method: method of the training.
        iteration: iteration of the policy that the training makes.
        pins: table versions; without versions of verdicts and trajectories, the result is empty.
        perceives: whether the training also reads perception data.
        watches: whether it also reads questions about recordings. A recording without a trajectory counts by its id.
    """
    source = _source(method)
    if not {"verdicts", "trajectories"} <= pins.keys() or (source is DataSource.PAIRS and "pairs" not in pins):
        return set()
    if source in (DataSource.GROUPS, DataSource.TRAJECTORIES, DataSource.REPLIES):
        own = pads.field("policy").isin(ACTING) if source is DataSource.REPLIES else pads.field("group_id").is_valid()
        where = (pads.field("iteration") == iteration) & own
        stored = lake.read(
            "trajectories", ["trajectory_id"], where & pads.field("success").is_valid(), pins["trajectories"]
        )
        return set(stored["trajectory_id"].to_pylist())
    if source is DataSource.PAIRS:
        sides = ["trajectory_id", "rejected_trajectory_id"]
        pairs = lake.read("pairs", sides, version=pins["pairs"])
        return {name for side in sides for name in pairs[side].to_pylist() if name}
    routes = ["ct"] if source is DataSource.FAILURES and not perceives else ["sft", "ct"]
    decisions = ask(lake, "decisions", pins, iteration=None).to_pylist()
    read = {row["trajectory_id"] for row in decisions if row["route"] in routes}
    return read | _recordings(lake, pins) if watches and "annotations" in pins else read


def _recordings(lake: Lake, pins: Mapping[str, int]) -> set[str]:
    """Return the ids of the recordings without a trajectory that have questions."""
    asked = lake.read("annotations", ["trajectory_id"], {"kind": "video"}, pins["annotations"])[0].to_pylist()
    acted = lake.read("trajectories", ["trajectory_id"], {"trajectory_id": sorted({*asked})}, pins["trajectories"])
    return {*asked} - {*acted["trajectory_id"].to_pylist()}


def watches(method: str, train: Mapping[str, Any]) -> bool:
    """Whether a training of a method with the settings `train` reads questions about recordings."""
    source = _source(method)
    shares = train if source is DataSource.ACCEPTED else train.get("ct", {}) if source is DataSource.FAILURES else {}
    return bool(shares.get("video"))


def imitates(method: str) -> bool:
    """Whether a method imitates the data of route `sft`."""
    return _source(method) is DataSource.ACCEPTED


def learned_from_people(lake: Lake) -> list[LearnedWorth]:
    """Return every policy that learned from a decision, oldest first."""
    rows = policies(lake)
    if not lake.count("reviews"):
        return []
    read = {name: decisions_of(lake, row) for name, row in rows.items()}
    won = outcomes_of(lake, *rows)
    return [_learned(rows[name], rows, read, won) for name, found in read.items() if found]


def _learned(
    row: PolicyVersion,
    rows: Mapping[str, PolicyVersion],
    read: Mapping[str, Sequence[UsedDecision]],
    won: Mapping[str, Sequence[EvaluationOutcome]],
) -> LearnedWorth:
    parent = row.parent or ""
    while (above := rows.get(parent)) and above.kind == "intermediate":
        parent = above.parent or ""
    found, known = read[row.policy_version], {one.review_id for one in read.get(parent, ())}
    new = [one for one in found if one.review_id not in known]
    tasks = sorted({one.task_id for one in new})
    own, theirs = ([one for one in won.get(name, ()) if one.task_id in tasks] for name in (row.policy_version, parent))
    before, after = shared_outcomes(theirs, own)
    worth = paired_difference(after, before)
    return LearnedWorth(
        policy=row.policy_version,
        parent=parent,
        decisions=len(found),
        new=len(new),
        by=dict(sorted(Counter(one.decision for one in new).items())),
        people=sorted({one.person for one in new}),
        tasks=tasks,
        before=_mean(before),
        after=_mean(after),
        difference=worth.mean if worth.n else None,
        ci=(worth.low, worth.high) if worth.n else None,
        n=worth.n,
    )


def _mean(won: Mapping[tuple[str, int], bool]) -> float | None:
    """Return the mean success over tasks."""
    by_task: dict[str, list[bool]] = {}
    for (task, _), success in won.items():
        by_task.setdefault(task, []).append(success)
    return sum(sum(rates) / len(rates) for rates in by_task.values()) / len(by_task) if by_task else None


def _read(one: UsedDecision, source: Any, only_verified: bool) -> bool:
    """Whether a method with this data source reads a decision."""
    live = one.decision == "override" or (one.decision in ("accept", "reject") and one.step is not None)
    if live and source is DataSource.ACCEPTED:
        return one.route == "sft"  # training imitates the steps as in any other trajectory
    if one.decision in WORDS:
        return not live
    if one.state == "refuted" or one.replaces is False or (one.state == "unverified" and only_verified):
        return False
    return source is DataSource.ACCEPTED or (source is DataSource.PAIRS and one.decision in REPLIES)


def _source(method: str) -> Any:
    """Return the data source of a method; accepted data if the method no longer exists."""
    try:
        return METHODS.instance_of(method).source
    except UsageError:
        return DataSource.ACCEPTED
