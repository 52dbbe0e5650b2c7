"""`flywheel lineage`: what a policy was made from, and what was made from a trajectory."""

import json
from collections import Counter
from collections.abc import Collection
from typing import Any

from rich.table import Table
from rich.text import Text

from schemas.failure import UsageError
from schemas.tables.policy import PolicyVersion
from schemas.tables.stage import label_of
from schemas.tables.verdict import DECISION
from schemas.text import harmless
from storage.catalog import ask
from storage.lake import Lake
from tasks.promote.events import event_of, shown
from tasks.quality.overrides import overridden
from tasks.running.console import out
from tasks.shared.learnt import decisions_of, read_by
from tasks.shared.policies import made_from, policies, policy_row

GONE = ("reason", "policies", "done", "created_at")
VERDICT = ("gate", "gate_version", "passed", "reason", "route")


def lineage_of(lake: Lake, name: str) -> dict[str, Any]:
    """The lineage of a policy or a trajectory, also of a forgotten one; raises UsageError if there is neither."""
    if name == "champion" or name in policies(lake):
        return _of_policy(lake, policy_row(lake, name))
    rows = lake.read("trajectories", where={"trajectory_id": name}).to_pylist()
    if rows:
        return _of_trajectory(lake, rows[0])
    if gone := lake.read("forgotten", where={"trajectory_id": name}).to_pylist():
        through = made_from(lake, gone[0]["policies"])
        return {"kind": "forgotten", "trajectory": name, **{key: gone[0][key] for key in GONE}, "through": through}
    known = ", ".join(policies(lake)) or "none"
    raise UsageError(f"There is neither a policy nor a trajectory `{name}` in {lake.uri}.", f"Policies: {known}.")


def _of_policy(lake: Lake, policy: PolicyVersion) -> dict[str, Any]:
    rows = policies(lake)
    chain = [policy]
    while (parent := chain[-1].parent) in rows:
        chain.append(rows[parent])
    return {
        "kind": "policy",
        "policy": policy.policy_version,
        "chain": [_link(row) for row in chain],
        "data_versions": policy.pins,
        "code": policy.code,
        "seed": policy.seed,
        "checkpoint": lake.blobs.store.path(policy.checkpoint),
        "metrics": json.loads(policy.metrics or "{}"),
        "config": json.loads(policy.config),
        "trajectories": _trained_on(lake, policy),
        "reviews": _learnt_from(lake, policy),
        "overridden": overridden(lake, policy.pins.get("quality_overrides")),
        "makers": _makers(lake, policy),
        "repeats": policy.repeats,
        "training_set": json.loads(policy.training_set or "null"),
        "decision": _decision(lake, policy),
    }


def _makers(lake: Lake, policy: PolicyVersion) -> list[dict[str, Any]]:
    """Who had a part in the data that its training read: kind (judge, or of an annotation), name, version, n."""
    if not {"verdicts", "trajectories"} <= policy.pins.keys():
        return []
    return ask(lake, "lineage_makers", policy.pins).to_pylist()


def _decision(lake: Lake, policy: PolicyVersion) -> dict[str, Any] | None:
    """What was decided when it challenged the champion."""
    told = event_of(lake, f"challenge:{policy.policy_version}")
    return told and shown(told)


def _link(row: PolicyVersion) -> dict[str, Any]:
    known = row.model_dump(include={"parent", "iteration", "method", "status", "code"})
    return {"policy": row.policy_version, **known}


def _learnt_from(lake: Lake, policy: PolicyVersion) -> dict[str, Any]:
    """The decisions of people that a policy's training read."""
    found = decisions_of(lake, policy)
    counts = Counter((one.person, one.decision) for one in found)
    by = [{"person": person, "decision": decision, "n": n} for (person, decision), n in sorted(counts.items())]
    return {"count": len(found), "by": by, "ids": [one.review_id for one in found]}


def _trained_on(lake: Lake, policy: PolicyVersion) -> dict[str, Any]:
    """The trajectories whose data a policy's training read."""
    versions = policy.pins
    perceives = json.loads(policy.config).get("train", {}).get("ct", {}).get("perception", 0)
    ids = sorted(read_by(lake, policy.method, policy.iteration, versions, bool(perceives)))
    if not ids:
        return {"count": 0, "by": [], "ids": []}
    stored = lake.read(
        "trajectories",
        ["trajectory_id", "iteration", "task_id"],
        {"trajectory_id": ids},
        version=versions["trajectories"],
    ).to_pylist()
    counts = Counter((row["iteration"], row["task_id"]) for row in stored)
    by = [{"iteration": iteration, "task": task, "n": n} for (iteration, task), n in sorted(counts.items())]
    return {"count": len(ids), "by": by, "ids": ids}


def readers_of(lake: Lake, names: Collection[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The policies whose training read each of these trajectories, oldest first; and those of which that is not known
    any more, since table versions that they pin were removed."""
    found: dict[str, list[str]] = {name: [] for name in names}
    unknown: list[str] = []
    for version, policy in policies(lake).items():
        if lake.missing(policy.pins):
            unknown.append(version)
            continue
        for name in found.keys() & set(_trained_on(lake, policy)["ids"]):
            found[name].append(version)
    return found, unknown


def made_from_readers(lake: Lake, readers: Collection[str], unknown: Collection[str]) -> tuple[list[str], list[str]]:
    """The policies that were made from readers, as children or by merging; and those of which nothing is known, with
    what was made from them."""
    through = made_from(lake, readers)
    known = {*readers, *through}
    return through, [name for name in [*unknown, *made_from(lake, unknown)] if name not in known]


def _of_trajectory(lake: Lake, row: dict[str, Any]) -> dict[str, Any]:
    name = row["trajectory_id"]
    verdicts = sorted(
        lake.read("verdicts", where={"trajectory_id": name}).to_pylist(),
        key=lambda one: (one["created_at"], one["gate"] == DECISION),
    )
    trained, unknown = readers_of(lake, [name])
    through, unknown = made_from_readers(lake, trained[name], unknown)
    shown = ("iteration", "task_id", "seed", "policy", "policy_version", "instruction", "n_steps", "reward", "success")
    return {
        "kind": "trajectory",
        "trajectory": name,
        **{key: row[key] for key in shown},
        "failure_boundary": row["failure_boundary"],
        "verdicts": [{key: one[key] for key in VERDICT} for one in verdicts],
        "thoughts": _thoughts(lake, name),
        "reviews": _reviews(lake, name),
        "policies": trained[name],
        "through": through,
        "unknown": unknown,
    }


def _thoughts(lake: Lake, trajectory: str) -> list[dict[str, Any]]:
    """Who wrote thoughts of its steps: author, version, n."""
    where = {"trajectory_id": trajectory, "kind": "thought"}
    rows = lake.read("annotations", ["author", "version"], where).to_pylist()
    counts = Counter((row["author"], row["version"]) for row in rows)
    return [{"author": author, "version": version, "n": n} for (author, version), n in counts.items()]


def _reviews(lake: Lake, trajectory: str) -> list[dict[str, Any]]:
    """What people decided of it, oldest first."""
    columns = ["revision", "person", "decision", "step", "undoes"]
    rows = lake.read("reviews", columns, {"trajectory_id": trajectory}).to_pylist()
    return sorted(rows, key=lambda row: row["revision"])


def show_lineage(found: dict[str, Any]) -> None:
    """The same for people."""
    {"policy": _show_policy, "trajectory": _show_trajectory, "forgotten": _show_forgotten}[found["kind"]](found)


def _show_forgotten(found: dict[str, Any]) -> None:
    console = out()
    for key in ("trajectory", "created_at", "reason"):
        console.print(f"{'forgotten' if key == 'created_at' else key:<15} {found[key]}")
    _show_reached(found)


def _show_reached(found: dict[str, Any]) -> None:
    console = out()
    console.print(f"{'policies':<15} {', '.join(found['policies']) or 'none was trained on it'}", soft_wrap=True)
    if found["through"]:
        console.print(f"{'made from these':<15} {', '.join(found['through'])}", soft_wrap=True)


def _show_policy(found: dict[str, Any]) -> None:
    console = out()
    for depth, link in enumerate(found["chain"]):
        made = f"iteration {link['iteration']}, {link['method']}, {link['status']}, code {link['code'][:12]}"
        policy = "  " * depth + ("from " if depth else "") + harmless(link["policy"])
        console.print(Text.assemble(f"{policy}  ", (made, "dim")))
    versions = ", ".join(f"{table} {version}" for table, version in sorted(found["data_versions"].items()))
    console.print(f"\ntable versions  {versions or 'none: made from nothing'}")
    console.print(f"config          {found['config'].get('name', '')}, seed {found['seed']} (whole with --json)")
    console.print(f"checkpoint      {found['checkpoint']}")
    console.print(f"trained on      {found['trajectories']['count']} trajectories (ids with --json)")
    said = ", ".join(f"{one['n']} {one['decision']} by {one['person']}" for one in found["reviews"]["by"])
    console.print(f"people          {said or 'nothing that people decided'}")
    for row in found["overridden"]:
        about = f"{row['table']}, {row['expectation']} of {label_of(row['iteration'])}"
        console.print(f"quality         {row['person']} overrode {about}: {row['reason']}")
    for one in found["makers"]:
        console.print(f"{one['kind']:<15} {one['n']:,} by {one['name']}{_of(one['version'])}")
    if found["repeats"]:
        console.print(f"repeats         {found['repeats']}")
    if found["decision"]:
        console.print(f"decision        {found['decision']['decision']}: {found['decision']['reason']}")
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("iteration", "task", "trajectories"):
        table.add_column(column, justify="left" if column == "task" else "right")
    for row in found["trajectories"]["by"]:
        table.add_row(str(row["iteration"]), row["task"], str(row["n"]))
    if found["trajectories"]["by"]:
        console.print(table)


def _of(version: str | None) -> str:
    return f" ({version})" if version else ""


def _show_trajectory(found: dict[str, Any]) -> None:
    console = out()
    for key in ("trajectory", "task_id", "seed", "iteration", "policy", "policy_version", "instruction", "success"):
        console.print(f"{key:<15} {found[key]}")
    for verdict in found["verdicts"]:
        word = "passed" if verdict["passed"] else "refused"
        console.print(f"{verdict['gate']:<15} {word}: {verdict['reason']} ({verdict['route']})")
    for one in found["reviews"]:
        console.print(f"{'person':<15} {one['person']}: {one['decision']}")
    for one in found["thoughts"]:
        console.print(f"{'thoughts':<15} {one['n']} by {one['author']}{_of(one['version'])}")
    _show_reached(found)
    if found["unknown"]:
        console.print(f"{'not known':<15} {', '.join(found['unknown'])}: what was read for them is not there any more")
