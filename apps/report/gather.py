"""Read the report's data from the lake; draws nothing."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from apps.quality.gather import Quality, quality_of
from flywheel import OpenLake
from schemas.config import Config
from schemas.tables.policy import PolicyVersion
from schemas.tables.stage import STAGES
from schemas.tables.task import short_names
from tasks.promote.events import outcomes, rolled_back, standing
from tasks.running.curve import EXPLORER, label
from tasks.shared.general import GeneralCheck, general_checks
from tasks.shared.paths import docs_folder
from tasks.shared.policies import policies
from tasks.shared.proposals import Proposals, proposals_of
from tasks.shared.status import IterationStatus, PolicySuccess
from tasks.shared.training_ledger import LearnedWorth, learned_from_people


@dataclass(frozen=True)
class Overview:
    """Everything the page shows but the replayed trajectories."""

    lake: str
    champion: str
    success: PolicySuccess | None
    """The champion's."""
    iterations: list[IterationStatus]
    outcomes: dict[int, str]
    """The outcome of each iteration's policy, in a word."""
    turned: float
    """Seconds that stages took, without the preparation."""
    between: float
    """Seconds between them."""
    collected: pl.DataFrame
    tasks: pl.DataFrame
    funnel: pl.DataFrame
    """The routes of an iteration's trajectories, the steps that are imitated, and what rejected the others."""
    thoughts: pl.DataFrame
    """The number of each author's thoughts, their patterns, and of the tries they took."""
    proposals: dict[str, Proposals]
    """The results of proposed tasks, by maker."""
    curriculum: pl.DataFrame
    quality: Quality
    docs: dict[str, str]
    """Links to the Data Docs by name."""
    stages: pl.DataFrame
    policies: list[PolicyVersion]
    """The newest first."""
    standings: dict[str, str]
    """The standing of each policy, in a word."""
    general: dict[str, GeneralCheck]
    """Success on general questions before and after the trainings, by policy."""
    people: list[LearnedWorth]
    training: pl.DataFrame
    """Measures of the latest trainings."""
    config: str


def gather(config: Config, lake: OpenLake, page_folder: Path) -> Overview:
    """Reads the overview; links are relative to `page_folder`."""
    rows, champion, made = lake.iterations(), lake.champion(), policies(lake.stored)
    stand, fallen = outcomes(lake.stored), rolled_back(lake.stored)
    return Overview(
        lake=lake.uri,
        champion=champion,
        success=lake.success(champion),
        iterations=rows,
        outcomes={row.iteration: stand.get(row.policy or "", "promoted" if row.promoted else "") for row in rows},
        turned=sum(row.wall_s for row in rows if row.iteration >= 0),
        between=sum(row.orchestration_s or 0.0 for row in rows if row.iteration >= 0),
        collected=lake.collected(),
        tasks=tasks(lake),
        funnel=lake.query("funnel"),
        thoughts=lake.query("thought_counts"),
        proposals=proposals_of(lake.stored),
        curriculum=curriculum(lake),
        quality=quality_of(lake.stored, None),
        docs=data_docs(config, lake, page_folder),
        stages=stage_times(rows),
        policies=list(reversed(made.values())),
        standings={name: standing(row, fallen) for name, row in made.items()},
        general=general_checks(lake.stored),
        people=people(lake),
        training=lake.training(),
        config=json.dumps(json.loads(config.canonical()), indent=2),
    )


def tasks(lake: OpenLake) -> pl.DataFrame:
    """Held-out success by task, its short name, and `by` the policy of an iteration or the explorer."""
    rows = lake.by_task()
    labels = {at: EXPLORER if at is None else label(at) for at in rows["iteration"].unique()}
    by = pl.col("iteration").replace_strict(labels, return_dtype=pl.String)
    return _named(rows).with_columns(by=by).drop("iteration")


def curriculum(lake: OpenLake) -> pl.DataFrame:
    """Every choice with the task's short name, newest iteration first, heaviest first."""
    order = {"iteration": True, "weight": True, "task": False}
    return _named(lake.curriculum().collect()).sort(*order, descending=list(order.values()))


def _named(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds the short names of tasks."""
    return rows.with_columns(
        task=pl.col("task_id").replace_strict(short_names(rows["task_id"]), return_dtype=pl.String)
    )


def stage_times(rows: list[IterationStatus]) -> pl.DataFrame:
    """The seconds of each stage of each iteration, and its place in `order`; the preparation comes first."""
    times = [
        (row.iteration, stage, seconds, STAGES.index(stage) if stage in STAGES else -1)
        for row in rows
        for stage, seconds in row.stages_s.items()
    ]
    kinds = {"iteration": pl.Int64, "stage": pl.String, "seconds": pl.Float64, "order": pl.Int64}
    return pl.DataFrame(times, schema=kinds, orient="row")


def people(lake: OpenLake) -> list[LearnedWorth]:
    """The people's data that each policy learned from, and its measured value, newest first, with short task names."""
    rows = learned_from_people(lake.stored)[::-1]
    names = short_names(task for row in rows for task in row.tasks)
    return [replace(row, tasks=[names[task] for task in row.tasks]) for row in rows]


def data_docs(config: Config, lake: OpenLake, page_folder: Path) -> dict[str, str]:
    """Links to the stored Data Docs, by name, newest first, relative to the page."""
    found = sorted(docs_folder(config, lake.stored).glob("i*-*/index.html"), reverse=True)
    links = {page.parent.name: Path(os.path.relpath(page, page_folder)).as_posix() for page in found}
    return {name.replace("-", " "): link for name, link in links.items()}
