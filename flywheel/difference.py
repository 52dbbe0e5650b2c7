"""Compare two data versions, and the policies made from them."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from curation.intervals import Interval, paired_difference, wilson
from schemas.failure import LakeError, UsageError
from schemas.tables.evaluation import SUITES
from schemas.tables.policy import PolicyVersion
from schemas.tables.task import GuiTask
from storage.difference import ChangedRoute, Counted, Difference, difference
from storage.lake import Lake
from tasks.shared.policies import policies, policy_row
from tasks.shared.status import outcomes_of, shared_outcomes
from tasks.train.train import PINNED

NOW = "now"
COMPARED = ("parent", "method", "code", "seed")
"""Compared fields of two policies."""


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """Number of trajectories, and the success rate of those without an environment failure; None if there are none."""

    trajectories: int
    success: float | None
    ci: tuple[float, float] | None
    """95 % interval."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Two success rates, and their difference."""

    a: SuccessRate
    b: SuccessRate
    shift: float | None


@dataclass(frozen=True, slots=True)
class Policies:
    """Two policies and their differences."""

    a: PolicyVersion
    b: PolicyVersion
    config: dict[str, tuple[Any, Any]]
    """Differing values by dotted key."""
    success: Interval
    """Difference B minus A, on the suite's tasks and seeds on which both policies were measured."""
    families: dict[str, Interval]
    """Success difference by family of tasks, held-out and made ones included."""

    def both(self, name: str) -> tuple[Any, Any]:
        """Returns a field of both policies."""
        return getattr(self.a, name), getattr(self.b, name)


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """Comparison of two data versions and, if the names are two policies, of these policies."""

    a: str
    b: str
    pins: tuple[dict[str, int], dict[str, int]]
    """Versions of tables, for both data versions."""
    found: Difference
    policies: Policies | None

    @property
    def tasks(self) -> dict[str, list[str]]:
        """Lists tasks for which only one version has trajectories."""
        both = self.found.tasks.items()
        added, removed = (
            [task for task, one in both if one.b and not one.a],
            [task for task, one in both if one.a and not one.b],
        )
        return {"added": added, "removed": removed}

    @property
    def families(self) -> dict[str, Shift]:
        """Computes the shift of success by family of tasks."""
        return {family: _shift(one) for family, one in sorted(self.found.families.items())}

    @property
    def flips(self) -> list[ChangedRoute]:
        """Lists changed labels, sorted by their number."""
        return sorted(self.found.flips, key=lambda one: -one.n)

    @property
    def as_dict(self) -> dict[str, Any]:
        """Converts the comparison to JSON, for two policies with their differences."""
        found = {
            "a": {"name": self.a, "versions": self.pins[0]}, "b": {"name": self.b, "versions": self.pins[1]},
            "rows": self.found.rows, "tasks": self.tasks, "families": self.families,
            "by_task": {task: _shift(one) for task, one in sorted(self.found.tasks.items())},
            "flips": self.flips, "judges": self.found.judges,
        }  # fmt: skip
        if (made := self.policies) is None:
            return found
        families = {family: paired_as_dict(at) for family, at in made.families.items()}
        plain = {name: made.both(name) for name in COMPARED}
        config = [{"key": key, "a": a, "b": b} for key, (a, b) in made.config.items()]
        success = {**paired_as_dict(made.success), "families": families}
        return {**found, "policies": {**plain, "config": config, "success": success}}


def difference_of(lake: Lake, a: str, b: str) -> VersionComparison:
    """Compares two versions.

    Raises:
        UsageError: a name is unknown.
        LakeError: files of a version were removed.
    """
    first, second = (_policy(lake, name) for name in (a, b))
    pins = [row.pins if row else _pins(lake, name) for row, name in ((first, a), (second, b))]
    if first or second:  # a policy pins only the tables that its training reads
        pins = [{table: version for table, version in one.items() if table in PINNED} for one in pins]
    for name, versions in zip((a, b), pins, strict=True):
        if gone := lake.missing(versions):
            listed = ", ".join(f"{table} {version}" for table, version in sorted(gone.items()))
            raise LakeError(f"Data of {name} no longer exists: {listed}.", "Compare with `now` or another policy.")
    made = _policies(lake, first, second) if first and second else None
    return VersionComparison(a, b, (pins[0], pins[1]), difference(lake, *pins), made)


def _policy(lake: Lake, name: str) -> PolicyVersion | None:
    return policy_row(lake, name) if name == "champion" or name in policies(lake) else None


def _pins(lake: Lake, name: str) -> dict[str, int]:
    if name == NOW:
        return lake.versions()
    try:
        moment = datetime.fromisoformat(name)
    except ValueError as error:
        known = ", ".join(policies(lake)) or "none"
        raise UsageError(
            f"`{name}` is neither a policy of {lake.uri}, nor `{NOW}`, nor a time.", f"Policies: {known}."
        ) from error
    return lake.versions_at(moment)


def _shift(one: Counted) -> Shift:
    a, b = wilson(one.a_successes, one.a_trials), wilson(one.b_successes, one.b_trials)
    return Shift(_rate(one.a, a), _rate(one.b, b), b.mean - a.mean if a.n and b.n else None)


def _rate(trajectories: int, at: Interval) -> SuccessRate:
    return SuccessRate(trajectories, at.mean, (at.low, at.high)) if at.n else SuccessRate(trajectories, None, None)


def _policies(lake: Lake, a: PolicyVersion, b: PolicyVersion) -> Policies:
    first, second = (flat_config(json.loads(row.config)) for row in (a, b))
    keys = sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))
    changed = {key: (first.get(key), second.get(key)) for key in keys}
    return Policies(a, b, changed, *_success(lake, a.policy_version, b.policy_version))


def flat_config(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Returns a config's values by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= flat_config(value, f"{above}{key}.") if isinstance(value, dict) and value else {f"{above}{key}": value}
    return found


def _success(lake: Lake, a: str, b: str) -> tuple[Interval, dict[str, Interval]]:
    """Computes the difference B minus A, over the suite and by family."""
    found = outcomes_of(lake, a, b)
    before, after = shared_outcomes(found[a], found[b], SUITES)
    tags = {task.task_id: task.tags for task in lake.rows(GuiTask)}
    by_family: dict[str, set[str]] = defaultdict(set)
    for task, _ in before:
        by_family[next(iter(tags.get(task, ())), task.partition("/")[0])].add(task)
    families = {
        family: paired_difference(
            *({key: won for key, won in side.items() if key[0] in tasks} for side in (after, before))
        )
        for family, tasks in sorted(by_family.items())
    }
    before, after = shared_outcomes(found[a], found[b])
    return paired_difference(after, before), families


def paired_as_dict(at: Interval) -> dict[str, Any]:
    """Converts a difference to JSON: null without pairs."""
    return {"difference": at.mean if at.n else None, "ci": (at.low, at.high) if at.n else None, "n": at.n}
