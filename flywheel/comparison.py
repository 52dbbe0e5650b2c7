"""Compare two lakes, or two runs of one lake, by success, tasks, data, cost and config."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from curation.intervals import Interval, paired_difference
from flywheel.difference import flat_config, paired_as_dict
from schemas.config import Config
from schemas.config.operations import BudgetConfig
from schemas.failure import UsageError
from schemas.tables import TABLES
from schemas.tables.evaluation import SUITES
from schemas.tables.policy import PolicyVersion
from storage.lake import Lake
from storage.schema_marker import NAME
from tasks.running.budget import Spent, spent
from tasks.shared.policies import champion_if_any, policies
from tasks.shared.runs import LakeRun, run_named, runs_of
from tasks.shared.status import (
    EvaluationOutcome,
    IterationStatus,
    iterations,
    outcomes_of,
    quoted_by_task,
    shared_outcomes,
)
from tasks.shared.trajectories import SHORT_ID

OWN_KEYS = ("lake.", "name")
"""Beginnings of the config keys that differ between any two lakes."""
Both = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Side:
    """The numbers of one lake, or of one run."""

    name: str
    """Address of the lake, or id of the run."""
    policy: PolicyVersion | None
    """The lake's champion, or the last policy of the run."""
    outcomes: Sequence[EvaluationOutcome]
    """The policy's outcomes on held-out seeds."""
    curve: list[IterationStatus]
    """The iterations, without the preparation and imports."""
    rows: dict[str, int]
    """Number of rows of each table. A run has those of its iterations, in the tables that name the iteration."""
    cost: Spent

    @property
    def version(self) -> str:
        """Version of the policy; empty if there is none."""
        return self.policy.policy_version if self.policy else ""

    @property
    def tasks(self) -> dict[str, float]:
        """The policy's success by task of any suite, as in `flywheel status`."""
        return {task: won / tried for task, (won, tried) in quoted_by_task(self.outcomes).items()}


@dataclass(frozen=True, slots=True)
class HistoryComparison:
    """Two lakes or two runs, and their differences."""

    a: Side
    b: Side

    @property
    def curve(self) -> list[tuple[IterationStatus | None, IterationStatus | None]]:
        """The iterations of both in order; None where one has fewer."""
        return list(zip_longest(self.a.curve, self.b.curve))

    @property
    def success(self) -> Interval:
        """Success of the policy of B minus that of A, on the suite's tasks and seeds of both."""
        return self._difference("suite")

    @property
    def others(self) -> dict[str, Interval]:
        """The same difference on held-out and on made tasks, by suite, where both were measured."""
        each = {suite: self._difference(suite) for suite in SUITES[1:]}
        return {suite: at for suite, at in each.items() if at.n}

    def _difference(self, suite: str) -> Interval:
        a, b = shared_outcomes(self.a.outcomes, self.b.outcomes, (suite,))
        return paired_difference(b, a)

    @property
    def tasks(self) -> dict[str, Both]:
        """The policies' success by task, the largest change first; None for a task that only one was measured on.

        A task of both has the seeds of both, test seeds if there are some; a task of one has its own seeds.
        """
        a, b = self.a.tasks, self.b.tasks
        both: dict[str, Both] = {task: (a.get(task), b.get(task)) for task in a.keys() | b.keys()}
        for task in a.keys() & b.keys():
            mine, theirs = ([one for one in side.outcomes if one.task_id == task] for side in (self.a, self.b))
            one, two = shared_outcomes(mine, theirs, SUITES)
            if one:
                both[task] = sum(one.values()) / len(one), sum(two.values()) / len(two)
        change = {task: abs((two or 0.0) - (one or 0.0)) for task, (one, two) in both.items()}
        return dict(sorted(both.items(), key=lambda it: (-change[it[0]], it[0])))

    @property
    def data(self) -> dict[str, tuple[int, int]]:
        """Number of rows of each table that differs."""
        a, b = self.a.rows, self.b.rows
        both = {name: (a.get(name, 0), b.get(name, 0)) for name in sorted(a.keys() | b.keys())}
        return {name: pair for name, pair in both.items() if pair[0] != pair[1]}

    @property
    def cost(self) -> dict[str, Both]:
        """Steps, hours, tokens and money of both."""
        return {name: (getattr(self.a.cost, name), getattr(self.b.cost, name)) for name in Spent.model_fields}

    @property
    def config(self) -> dict[str, Both]:
        """Differing config keys of the policies, without those of the lake itself."""
        if self.a.policy is None or self.b.policy is None:
            return {}
        a, b = (flat_config(json.loads(one.config)) for one in (self.a.policy, self.b.policy))
        keys = sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key) and not key.startswith(OWN_KEYS))
        return {key: (a.get(key), b.get(key)) for key in keys}

    @property
    def as_dict(self) -> dict[str, Any]:
        """Converts the comparison to JSON."""
        return {
            "a": {"name": self.a.name, "policy": self.a.version}, "b": {"name": self.b.name, "policy": self.b.version},
            "success": paired_as_dict(self.success), **{name: paired_as_dict(at) for name, at in self.others.items()},
            "curve": [{"a": _point(one), "b": _point(two)} for one, two in self.curve],
            "tasks": self.tasks, "data": self.data, "cost": self.cost,
            "config": [{"key": key, "a": one, "b": two} for key, (one, two) in self.config.items()],
        }  # fmt: skip


def is_lake(name: str) -> bool:
    """Whether a name is the address of a lake: one in an object store, or a folder with a lake."""
    return "://" in name or (Path(name) / NAME).is_file()


def compare_lakes(config: Config, a: str, b: str) -> HistoryComparison:
    """Compares the lakes at two addresses. `lake.*` of the config has the credentials, `budget` the prices.

    Raises:
        UsageError: one of the names is no lake.
        LakeError: a lake cannot be opened.
    """
    for name in (a, b):
        if not is_lake(name):
            raise UsageError(f"`{name}` is no lake, and the other name is one.", "Name two lakes, or two versions.")
    opened = (Lake.open(config.lake.model_copy(update={"uri": uri}), create=False) for uri in (a, b))
    return HistoryComparison(*(whole_lake(lake, config.budget) for lake in opened))


def whole_lake(lake: Lake, budget: BudgetConfig) -> Side:
    """Returns the numbers of a lake; the budget has the prices."""
    rows = {table: lake.count(table) for table in lake.versions()}
    champion = champion_if_any(lake)
    curve = [row for row in iterations(lake) if row.iteration >= 0]
    return Side(lake.uri, champion, _outcomes(lake, champion), curve, rows, spent(lake, budget))


def compare_runs(lake: Lake, budget: BudgetConfig, a: str, b: str) -> HistoryComparison:
    """Compares two runs of a lake.

    Args:
        lake: the lake.
        budget: prices of an hour and of tokens.
        a: id of the first run, or at least 8 characters that no other run's id begins with.
        b: id of the second run.

    Raises:
        UsageError: a name is no run of this lake.
    """
    return HistoryComparison(*(_run_side(lake, budget, require_run(lake, name)) for name in (a, b)))


def require_run(lake: Lake, name: str) -> LakeRun:
    """Returns a run; raises UsageError if the name is no run of this lake."""
    if (run := run_named(lake, name)) is None:
        known = ", ".join(one.run_id[:SHORT_ID] for one in runs_of(lake)[-5:]) or "none"
        raise UsageError(f"`{name}` is no run of {lake.uri}.", f"The newest runs: {known}. `flywheel status` has them.")
    return run


def _run_side(lake: Lake, budget: BudgetConfig, run: LakeRun) -> Side:
    own = set(run.iterations)
    curve = [row for row in iterations(lake) if row.iteration in own and row.iteration >= 0]
    made = next((row.policy for row in reversed(curve) if row.policy), None)
    row = policies(lake).get(made or "")
    there = {name for name in lake.versions() if "iteration" in TABLES[name].schema.names}
    rows = {name: lake.count(name, {"iteration": run.iterations}) for name in sorted(there)}
    return Side(run.run_id, row, _outcomes(lake, row), curve, rows, spent(lake, budget, own))


def _outcomes(lake: Lake, row: PolicyVersion | None) -> list[EvaluationOutcome]:
    return [] if row is None else outcomes_of(lake, row.policy_version)[row.policy_version]


def _point(row: IterationStatus | None) -> dict[str, Any] | None:
    kept = ("iteration", "policy", "success", "ci", "trajectories")
    return None if row is None else {name: value for name, value in asdict(row).items() if name in kept}
