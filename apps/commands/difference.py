"""`flywheel diff`: what changed between two data versions, and between the policies that were made from them."""

import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.table import Table

from curation.intervals import Interval, paired_difference, wilson
from schemas.failure import LakeError, UsageError
from schemas.tables.evaluation import Evaluation
from schemas.tables.policy import PolicyVersion
from schemas.tables.task import GuiTask
from storage.difference import Counted, Difference, difference
from storage.lake import Lake
from tasks.running.console import out
from tasks.shared.policies import policies, policy_row
from tasks.train.train import PINNED

NOW = "now"
SHOWN = 12
"""Lines of a table for people; `--json` has all."""


def difference_of(lake: Lake, a: str, b: str) -> dict[str, Any]:
    """Two versions side by side.

    Keys: a, b (name, versions by table), rows (by table: of a, of b), tasks (added, removed), families and by_task (of
    each: trajectories, success with 95 % interval, shift), flips (was, now, n, examples), judges (verdicts of a, of b);
    of two policies also policies: parents, methods, codes, config (key, a, b), success (b minus a on the same tasks and
    seeds, over all and by family).

    Raises:
        UsageError: a name that is none.
        LakeError: files of a version were removed.
    """
    rows = [_policy(lake, name) for name in (a, b)]
    pins = [row.pins if row else _pins(lake, name) for row, name in zip(rows, (a, b), strict=True)]
    if any(rows):  # a policy pins what a training reads, and no more
        pins = [{table: version for table, version in one.items() if table in PINNED} for one in pins]
    for name, versions in zip((a, b), pins, strict=True):
        if gone := lake.missing(versions):
            listed = ", ".join(f"{table} {version}" for table, version in sorted(gone.items()))
            raise LakeError(f"Data of {name} is not there any more: {listed}.", "Compare with `now` or another policy.")
    found = difference(lake, *pins)
    shown = {
        "a": {"name": a, "versions": dict(pins[0])},
        "b": {"name": b, "versions": dict(pins[1])},
        **_shown(found),
    }
    first, second = rows
    return {**shown, "policies": _policies(lake, first, second)} if first and second else shown


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
            f"`{name}` is no policy of {lake.uri}, not `{NOW}`, and no time.", f"Policies: {known}."
        ) from error
    return lake.versions_at(moment)


def _shown(found: Difference) -> dict[str, Any]:
    return {
        "rows": {table: list(counts) for table, counts in found.rows.items()},
        "tasks": {
            "added": [task for task, one in found.tasks.items() if one.b and not one.a],
            "removed": [task for task, one in found.tasks.items() if one.a and not one.b],
        },
        "families": {family: _rates(one) for family, one in sorted(found.families.items())},
        "by_task": {task: _rates(one) for task, one in sorted(found.tasks.items())},
        "flips": [
            {"was": one.was, "now": one.now, "n": one.n, "examples": one.examples}
            for one in sorted(found.flips, key=lambda one: -one.n)
        ],
        "judges": {judge: list(counts) for judge, counts in found.judges.items()},
    }


def _rates(one: Counted) -> dict[str, Any]:
    """Trajectories and success of both, and how far it moved."""
    a, b = wilson(one.a_successes, one.a_trials), wilson(one.b_successes, one.b_trials)
    shift = b.mean - a.mean if a.n and b.n else None
    return {"a": _rate(one.a, a), "b": _rate(one.b, b), "shift": shift}


def _rate(trajectories: int, at: Interval) -> dict[str, Any]:
    known = at.n > 0
    return {
        "trajectories": trajectories,
        "success": at.mean if known else None,
        "ci": [at.low, at.high] if known else None,
    }


def _policies(lake: Lake, a: PolicyVersion, b: PolicyVersion) -> dict[str, Any]:
    first, second = (_flat(json.loads(row.config)) for row in (a, b))
    changed = [
        {"key": key, "a": first.get(key), "b": second.get(key)}
        for key in sorted(first.keys() | second.keys())
        if first.get(key) != second.get(key)
    ]
    plain = {key: [getattr(a, key), getattr(b, key)] for key in ("parent", "method", "code", "seed")}
    return {**plain, "config": changed, "success": _success(lake, a.policy_version, b.policy_version)}


def _flat(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A config's values by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= _flat(value, f"{above}{key}.") if isinstance(value, dict) and value else {f"{above}{key}": value}
    return found


def _success(lake: Lake, a: str, b: str) -> dict[str, Any]:
    """B minus A on the tasks and seeds that both were measured on."""
    won: dict[str, dict[tuple[str, int], bool]] = {a: {}, b: {}}
    for row in lake.rows(Evaluation, {"policy_version": [a, b], "suite": ["suite", "held_out"]}):
        if row.success is not None:
            won[row.policy_version][row.task_id, row.seed] = row.success
    tags = {task.task_id: task.tags for task in lake.rows(GuiTask)}
    by_family: dict[str, set[str]] = defaultdict(set)
    for task, _ in won[a].keys() & won[b].keys():
        by_family[next(iter(tags.get(task, ())), task.partition("/")[0])].add(task)
    families = {
        family: _paired(*({key: won_it for key, won_it in won[side].items() if key[0] in tasks} for side in (b, a)))
        for family, tasks in sorted(by_family.items())
    }
    return {**_paired(won[b], won[a]), "families": families}


def _paired(new: Mapping[tuple[str, int], bool], old: Mapping[tuple[str, int], bool]) -> dict[str, Any]:
    at = paired_difference(new, old)
    return {"difference": at.mean if at.n else None, "ci": [at.low, at.high] if at.n else None, "n": at.n}


def show_difference(found: dict[str, Any]) -> None:
    """The same for people: what changed, the largest first."""
    console = out()
    for table, (before, after) in found["rows"].items():
        if before != after:
            console.print(f"{table:<14} {before:>9,} {after:>9,}  {after - before:+,}")
    for word, tasks in found["tasks"].items():
        if tasks:
            more = f" and {len(tasks) - SHOWN} more" if len(tasks) > SHOWN else ""
            console.print(f"tasks {word}: {', '.join(tasks[:SHOWN])}{more}", markup=False)
    moved = sorted(
        ((name, one) for name, one in found["families"].items() if one["shift"]), key=lambda it: -abs(it[1]["shift"])
    )
    _table("family", [(name, _number(one["a"]["success"]), _number(one["b"]["success"]), f"{one['shift']:+.3f}")
                      for name, one in moved[:SHOWN]])  # fmt: skip
    for flip in found["flips"][:SHOWN]:
        was, now = (flip[key] or "no route" for key in ("was", "now"))
        console.print(f"{flip['n']:,} trajectories from {was} to {now}, {flip['examples'][0]} for one")
    for judge, (before, after) in found["judges"].items():
        if before != after:
            console.print(f"judge {judge}: {before:,} verdicts, then {after:,}", markup=False)
    if "policies" in found:
        _show_policies(found["policies"])


def _show_policies(found: dict[str, Any]) -> None:
    console = out()
    for key in ("parent", "method", "code", "seed"):
        if found[key][0] != found[key][1]:
            console.print(f"{key:<14} {found[key][0]} -> {found[key][1]}", markup=False)
    for one in found["config"]:
        console.print(f"{one['key']}: {one['a']} -> {one['b']}", markup=False)
    at = found["success"]
    if at["difference"] is not None:
        low, high = at["ci"]
        console.print(f"success        {at['difference']:+.3f} ({low:+.3f} to {high:+.3f}) over {at['n']} pairs")


def _table(name: str, rows: list[tuple[str, str, str, str]]) -> None:
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (name, "success before", "after", "shift"):
        table.add_column(column, justify="left" if column == name else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    out().print(table)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
