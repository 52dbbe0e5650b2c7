"""Reads from the lake what the report shows, as plain rows; draws nothing."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from apps.quality.gather import quality_of
from curation.intervals import Interval
from schemas.config import Config
from schemas.tables.stage import PREPARE, STAGES, label_of
from schemas.tables.task import short_names
from storage.catalog import ask
from storage.lake import Lake
from tasks.promote.events import outcomes
from tasks.shared.learnt import learnt_from_people
from tasks.shared.paths import docs_folder
from tasks.shared.policies import policies, reigning
from tasks.shared.status import IterationStatus, iterations, verified

Rows = list[dict[str, Any]]
START = "start"
EXPLORER = "explorer"
FIXED = "policy, same tasks"
"""Its rate over the tasks that it is given in every iteration, equally weighed."""


def gather(config: Config, lake: Lake, page_folder: Path) -> dict[str, Any]:
    """Everything the page shows but the replayed trajectories; `page_folder` is what links start from."""
    rows, stand = iterations(lake), outcomes(lake)
    return {
        "lake": lake.uri,
        "champion": champion.policy_version if (champion := reigning(lake)) else "",
        "iterations": [
            {**asdict(row), "label": label(row.iteration), "outcome": stand.get(row.policy or "", _kept(row))}
            for row in rows
        ],
        "turned": sum(row.wall_s for row in rows if row.iteration >= 0),
        "between": sum(row.orchestration_s or 0.0 for row in rows if row.iteration >= 0),
        "collected": collected(lake),
        "tasks": tasks(lake),
        "funnel": ask(lake, "funnel").to_pylist(),
        "thoughts": ask(lake, "thought_counts").to_pylist(),
        "curriculum": curriculum(lake),
        "quality": quality(lake),
        "docs": data_docs(config, lake, page_folder),
        "stages": [
            {"iteration": label(row.iteration), "stage": stage, "seconds": seconds, "order": order(stage)}
            for row in rows
            for stage, seconds in row.stages_s.items()
        ],
        "policies": list(reversed(policies(lake).values())),
        "people": people(lake),
        "config": json.dumps(json.loads(config.canonical()), indent=2),
    }


def _kept(row: IterationStatus) -> str:
    """How a policy stands of which no decision was recorded."""
    return "promoted" if row.promoted else ""


def label(iteration: int) -> str:
    """How an iteration is called on an axis."""
    return START if iteration == PREPARE else label_of(iteration).removeprefix("iteration ")


def order(stage: str) -> int:
    """The place of a stage in an iteration; the preparation comes first."""
    return STAGES.index(stage) if stage in STAGES else -1


def collected(lake: Lake) -> Rows:
    """P(V=1 | iteration) of what was collected, by kind of policy, 95 % intervals; the policy's also at a fixed mix."""
    found = verified(lake)
    own = [(row, row.kind, row.at) for row in found]
    fixed = [
        (row, FIXED, Interval(mix.rate, *mix.ci, mix.n))
        for row in found
        if row.kind == "policy" and (mix := row.fixed_mix)
    ]
    return [
        {"iteration": label(row.iteration), "kind": kind, "n": at.n, "success": at.mean, "low": at.low, "high": at.high}
        for row, kind, at in own + fixed
    ]


def tasks(lake: Lake) -> Rows:
    """Held-out success by task: the explorer's, the untrained policy's, and every iteration's policy's."""
    evaluated = lake.read(
        "evaluations", ["policy_version", "task_id", "success", "suite"], {"suite": "suite"}
    ).to_pylist()
    measured = ask(lake, "tasks").to_pylist()
    names = short_names(row["task_id"] for row in [*measured, *evaluated])
    rows = [
        {
            "task": names[row["task_id"]],
            "task_id": row["task_id"],
            "suite": row["suite"],
            "by": label(row["iteration"]),
            "success": row["success"],
            "n": row["n"],
        }
        for row in measured
        if row["success"] is not None
    ]
    trained = policies(lake)
    by_task: dict[str, list[bool]] = {}
    for row in evaluated:
        if row["policy_version"] not in trained and row["success"] is not None:
            by_task.setdefault(row["task_id"], []).append(row["success"])
    explored = [
        {
            "task": names[task],
            "task_id": task,
            "suite": "suite",
            "by": EXPLORER,
            "success": sum(outcomes) / len(outcomes),
            "n": len(outcomes),
        }
        for task, outcomes in sorted(by_task.items())
    ]
    return explored + rows


def curriculum(lake: Lake) -> Rows:
    """Every choice, with short task names, newest iteration first, heaviest first."""
    rows = lake.read("curriculum").to_pylist()
    names = short_names(row["task_id"] for row in rows)
    named = [{**row, "task": names[row["task_id"]]} for row in rows]
    return sorted(named, key=lambda row: (-row["iteration"], -row["weight"], row["task"]))


def quality(lake: Lake) -> dict[str, Rows]:
    """Per iteration, the oldest first, how many expectations held; and the newest that did not."""
    found = quality_of(lake, None)
    counts = [{**row, "warning": row["warnings"]} for row in reversed(found["iterations"])]
    return {"counts": counts, "failing": found["results"]}


def people(lake: Lake) -> Rows:
    """What each policy learned from people and what it was worth, newest first, with short task names."""
    rows = [one.shown for one in reversed(learnt_from_people(lake))]
    names = short_names(task for row in rows for task in row["tasks"])
    return [{**row, "tasks": [names[task] for task in row["tasks"]]} for row in rows]


def data_docs(config: Config, lake: Lake, page_folder: Path) -> Rows:
    """Links to the Data Docs that are kept, newest first, relative to the page."""
    found = sorted(docs_folder(config, lake).glob("i*-*/index.html"), reverse=True)
    return [
        {"name": page.parent.name.replace("-", " "), "link": Path(os.path.relpath(page, page_folder)).as_posix()}
        for page in found
    ]
