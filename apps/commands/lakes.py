"""Implement `flywheel diff LAKE LAKE`: two lakes by success, tasks, data, cost and config."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from apps.commands.difference import SHOWN, flat_config
from apps.options import print_line
from curation.intervals import Interval, paired_difference
from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.evaluation import SUITES, Evaluation
from schemas.tables.policy import PolicyVersion
from schemas.tables.stage import label_of
from storage.lake import Lake
from storage.schema_marker import NAME
from tasks.running.budget import Spent, short, spent
from tasks.running.console import make_table, out
from tasks.shared.policies import champion_if_any
from tasks.shared.status import IterationStatus, iterations

OWN_KEYS = ("lake.", "name")
"""Beginnings of the config keys that differ between any two lakes."""
Both = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class LakeSide:
    """The numbers of one lake."""

    uri: str
    champion: PolicyVersion | None
    outcomes: Mapping[tuple[str, int], bool]
    """The champion's success on held-out seeds, by task and seed."""
    curve: list[IterationStatus]
    rows: dict[str, int]
    """Number of rows of each table."""
    cost: Spent

    @property
    def version(self) -> str:
        """Version of the champion; empty before the first policy."""
        return self.champion.policy_version if self.champion else ""

    @property
    def tasks(self) -> dict[str, float]:
        """The champion's success by task."""
        won = defaultdict[str, list[bool]](list)
        for (task, _), success in self.outcomes.items():
            won[task].append(success)
        return {task: sum(each) / len(each) for task, each in won.items()}


@dataclass(frozen=True, slots=True)
class LakeComparison:
    """Two lakes and their differences."""

    a: LakeSide
    b: LakeSide

    @property
    def success(self) -> Interval:
        """Success of the champion of B minus that of A, on the tasks and seeds of both."""
        return paired_difference(self.b.outcomes, self.a.outcomes)

    @property
    def tasks(self) -> dict[str, Both]:
        """The champions' success by task, the largest change first; None for a task that only one lake measured."""
        a, b = self.a.tasks, self.b.tasks
        both = {task: (a.get(task), b.get(task)) for task in a.keys() | b.keys()}
        change = {task: abs((two or 0.0) - (one or 0.0)) for task, (one, two) in both.items()}
        return dict(sorted(both.items(), key=lambda it: (-change[it[0]], it[0])))

    @property
    def data(self) -> dict[str, tuple[int, int]]:
        """Number of rows of each table that differs."""
        a, b = self.a.rows, self.b.rows
        both = {name: (a.get(name, 0), b.get(name, 0)) for name in sorted(a.keys() | b.keys())}
        return {name: pair for name, pair in both.items() if pair[0] != pair[1]}

    @property
    def config(self) -> dict[str, Both]:
        """Differing config keys of the champions, without those of the lake itself."""
        if self.a.champion is None or self.b.champion is None:
            return {}
        a, b = (flat_config(json.loads(one.config)) for one in (self.a.champion, self.b.champion))
        keys = sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key) and not key.startswith(OWN_KEYS))
        return {key: (a.get(key), b.get(key)) for key in keys}

    @property
    def as_dict(self) -> dict[str, Any]:
        """Converts the comparison to JSON."""
        a, b, at = self.a, self.b, self.success
        curve = [
            {"iteration": number, "a": _point(one), "b": _point(two)}
            for number, (one, two) in enumerate(zip_longest(_run(a), _run(b)))
        ]
        return {
            "a": {"lake": a.uri, "champion": a.version}, "b": {"lake": b.uri, "champion": b.version},
            "success": {"difference": at.mean if at.n else None, "ci": (at.low, at.high) if at.n else None, "n": at.n},
            "curve": curve, "tasks": self.tasks, "data": self.data,
            "cost": {name: (getattr(a.cost, name), getattr(b.cost, name)) for name in Spent.model_fields},
            "config": [{"key": key, "a": one, "b": two} for key, (one, two) in self.config.items()],
        }  # fmt: skip


def is_lake(name: str) -> bool:
    """Whether a name is the address of a lake: one in an object store, or a folder with a lake."""
    return "://" in name or (Path(name) / NAME).is_file()


def compare_lakes(config: Config, a: str, b: str) -> LakeComparison:
    """Compares the lakes at two addresses. `lake.*` of the config has the credentials.

    Raises:
        UsageError: one of the names is no lake.
        LakeError: a lake cannot be opened.
    """
    for name in (a, b):
        if not is_lake(name):
            raise UsageError(f"`{name}` is no lake, and the other name is one.", "Name two lakes, or two versions.")
    return LakeComparison(_side(config, a), _side(config, b))


def _side(config: Config, uri: str) -> LakeSide:
    lake = Lake.open(config.lake.model_copy(update={"uri": uri}), create=False)
    row = champion_if_any(lake)
    where = {"policy_version": row.policy_version if row else "", "suite": list(SUITES)}
    outcomes = {(one.task_id, one.seed): one.success for one in lake.rows(Evaluation, where) if one.success is not None}
    rows = {table: lake.count(table) for table in lake.versions()}
    return LakeSide(lake.uri, row, outcomes, iterations(lake), rows, spent(lake, config.budget))


def _run(side: LakeSide) -> list[IterationStatus]:
    return [row for row in side.curve if row.iteration >= 0]


def _point(row: IterationStatus | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {name: value for name, value in asdict(row).items() if name in ("policy", "success", "ci", "trajectories")}


def show_lakes(found: LakeComparison) -> None:
    """Prints the comparison, the largest changes first."""
    a, b, console = found.a, found.b, out()
    table = make_table("<", f"<{a.uri}", f"<{b.uri}", gap=2)
    table.add_row("champion", a.version or "none", b.version or "none")
    for number, (one, two) in enumerate(zip_longest(_run(a), _run(b))):
        table.add_row(f"success, {label_of(number)}", _success(one), _success(two))
    shown = list(found.tasks.items())[:SHOWN]
    for task, (one, two) in shown:
        table.add_row(task, _number(one), _number(two))
    for name, (before, after) in found.data.items():
        table.add_row(name, f"{before:,}", f"{after:,}")
    for name in Spent.model_fields:
        one, two = getattr(a.cost, name), getattr(b.cost, name)
        if one or two:
            table.add_row(f"cost, {name}", short(one), short(two))
    for key, (one, two) in found.config.items():
        table.add_row(key, str(one), str(two))
    console.print(table)
    if (more := len(found.tasks) - len(shown)) > 0:
        print_line(f"{more} more tasks are in --json.")
    if (at := found.success).n:
        print_line(
            f"The champion of the second lake minus the first: {at.mean:+.3f} ({at.low:+.3f} to {at.high:+.3f}) "
            f"over {at.n} pairs of tasks and seeds."
        )
    else:
        print_line("The champions have no task and seed in common.")


def _success(row: IterationStatus | None) -> str:
    if row is None or row.success is None:
        return "-"
    return f"{row.success:.3f}" + (" ({:.2f} to {:.2f})".format(*row.ci) if row.ci else "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
