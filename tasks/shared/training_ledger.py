"""Find the data that policies learned from, and the effect of people's decisions on the tasks that they touched.

A policy learned from the data in force in the tables that its training was pinned to. Its new data is that which its
parent had not learned from. The effect is the policy's success on those tasks minus its parent's, on the same held-out
seeds: of the decisions, and of all other data that was collected in between.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.dataset as pads

from curation.intervals import NOTHING, Interval, paired_difference
from learning.algorithms.method import METHODS, DataSource
from schemas.failure import UsageError
from schemas.tables.evaluation import Evaluation
from schemas.tables.policy import PolicyVersion
from storage.catalog import answers, ask
from storage.lake import Lake
from tasks.shared.policies import policies

NEEDED = {"reviews", "trajectories", "steps", "verdicts", "annotations"}
"""Tables whose pinned versions have people's decisions at the time."""
WORDS = ("accept", "reject", "error_step")
"""Decisions on whole trajectories: they select the data of every method."""
REPLIES = ("correct", "override")
"""Decisions that are preferences too."""


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
    """Route of the trajectory's data; empty where no filter has seen it."""


@dataclass(frozen=True, slots=True)
class LearnedWorth:
    """Decisions that one policy learned from, and their effect, as JSON."""

    policy: str
    parent: str
    decisions: int
    new: int
    by: dict[str, int]
    """Number of new ones by decision."""
    people: list[str]
    tasks: list[str]
    before: float | None
    after: float | None
    difference: float | None
    ci: tuple[float, float] | None
    n: int


@dataclass(frozen=True, slots=True)
class TrainingUse:
    """Decisions that one policy learned from, and their effect."""

    policy: str
    parent: str
    decisions: Sequence[UsedDecision]
    new: Sequence[UsedDecision]
    """Decisions that its parent had not learned from."""
    tasks: Sequence[str]
    """Tasks of the new ones."""
    before: float | None
    """The parent's success on these tasks; None where it was not measured on them."""
    after: float | None
    worth: Interval
    """After minus before, by task and seed; 95 % interval over trajectories."""

    @property
    def summary(self) -> LearnedWorth:
        """Return the numbers for JSON."""
        at = self.worth if self.worth.n else None
        return LearnedWorth(
            policy=self.policy,
            parent=self.parent,
            decisions=len(self.decisions),
            new=len(self.new),
            by=dict(sorted(Counter(one.decision for one in self.new).items())),
            people=sorted({one.person for one in self.new}),
            tasks=list(self.tasks),
            before=self.before,
            after=self.after,
            difference=at.mean if at else None,
            ci=(at.low, at.high) if at else None,
            n=self.worth.n,
        )


def decisions_of(lake: Lake, policy: PolicyVersion) -> list[UsedDecision]:
    """Return the decisions that a policy's training read; none for one without the necessary pins."""
    if not policy.pins.keys() >= NEEDED:
        return []
    found = answers(lake, UsedDecision, "people_decisions", policy.pins)
    source, only = _source(policy.method), _only_verified(policy)
    return [one for one in found if _read(one, source, only)]


def read_by(lake: Lake, method: str, iteration: int, pins: Mapping[str, int], perceives: bool) -> set[str]:
    """Return the ids of the trajectories whose data a training reads.

    They depend on its method: groups of its iteration, pairs so far, or all routed data. A success that a group was
    shown is not distinguished.

    Args:
        lake: the lake.
        method: method of the training.
        iteration: iteration of the policy that it makes.
        pins: the versions of the tables; none without those of verdicts and trajectories.
        perceives: whether it reads perception data, too.
    """
    source = _source(method)
    if not {"verdicts", "trajectories"} <= pins.keys() or (source is DataSource.PAIRS and "pairs" not in pins):
        return set()
    if source in (DataSource.GROUPS, DataSource.TRAJECTORIES):
        where = (pads.field("iteration") == iteration) & pads.field("group_id").is_valid()
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
    return {row["trajectory_id"] for row in decisions if row["route"] in routes}


def imitates(method: str) -> bool:
    """Whether a training by this method imitates the data of route `sft`."""
    return _source(method) is DataSource.ACCEPTED


def learned_from_people(lake: Lake) -> list[TrainingUse]:
    """Return every policy that learned from a decision, oldest first."""
    rows = policies(lake)
    if not lake.count("reviews"):
        return []
    read = {name: decisions_of(lake, row) for name, row in rows.items()}
    evaluated = [one for one in lake.rows(Evaluation, {"suite": "suite"}) if one.success is not None]
    won: dict[str, dict[tuple[str, int], bool]] = {}
    for one in evaluated:
        won.setdefault(one.policy_version, {})[one.task_id, one.seed] = bool(one.success)
    return [_learnt(rows[name], rows, read, won) for name, found in read.items() if found]


def _learnt(
    row: PolicyVersion,
    rows: Mapping[str, PolicyVersion],
    read: Mapping[str, Sequence[UsedDecision]],
    won: Mapping[str, Mapping[tuple[str, int], bool]],
) -> TrainingUse:
    parent = row.parent or ""
    while (above := rows.get(parent)) is not None and above.kind == "intermediate":
        parent = above.parent or ""
    found, known = read[row.policy_version], {one.review_id for one in read.get(parent, ())}
    new = [one for one in found if one.review_id not in known]
    tasks = sorted({one.task_id for one in new})
    before, after = (
        {key: won_it for key, won_it in won.get(name, {}).items() if key[0] in tasks}
        for name in (parent, row.policy_version)
    )
    both = before.keys() & after.keys()
    return TrainingUse(
        policy=row.policy_version,
        parent=parent,
        decisions=found,
        new=new,
        tasks=tasks,
        before=_mean({key: before[key] for key in both}),
        after=_mean({key: after[key] for key in both}),
        worth=paired_difference(after, before) if both else NOTHING,
    )


def _mean(won: Mapping[tuple[str, int], bool]) -> float | None:
    """Return the mean over tasks."""
    by_task: dict[str, list[bool]] = {}
    for (task, _), success in won.items():
        by_task.setdefault(task, []).append(success)
    return sum(sum(rates) / len(rates) for rates in by_task.values()) / len(by_task) if by_task else None


def _read(one: UsedDecision, source: Any, only_verified: bool) -> bool:
    """Whether a method with such a source reads a decision."""
    live = one.decision == "override" or (one.decision in ("accept", "reject") and one.step is not None)
    if live and source is DataSource.ACCEPTED:
        return one.route == "sft"  # its steps are imitated like those of any other trajectory
    if one.decision in WORDS:
        return not live
    if one.state == "refuted" or one.replaces is False or (one.state == "unverified" and only_verified):
        return False
    return source is DataSource.ACCEPTED or (source is DataSource.PAIRS and one.decision in REPLIES)


def _source(method: str) -> Any:
    """Return the data source of a method; accepted data where the method is not known any more."""
    try:
        return METHODS.instance_of(method).source
    except UsageError:
        return DataSource.ACCEPTED


def _only_verified(policy: PolicyVersion) -> bool:
    return json.loads(policy.config).get("filter", {}).get("corrections") == "verified"
