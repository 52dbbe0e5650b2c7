"""Read the report's data from the lake, as typed rows; draws nothing."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel

from apps.quality.gather import Quality, quality_of
from curation.intervals import Interval
from schemas.config import Config
from schemas.tables.curriculum import CurriculumChoice
from schemas.tables.evaluation import Evaluation
from schemas.tables.policy import PolicyVersion
from schemas.tables.stage import PREPARE, STAGES, label_of
from schemas.tables.task import short_names
from storage.catalog import answers, ask
from storage.lake import Lake
from tasks.promote.events import outcomes, rolled_back, standing
from tasks.shared.paths import docs_folder
from tasks.shared.policies import champion_if_any, policies
from tasks.shared.status import IterationStatus, PolicySuccess, iterations, success_of, verified
from tasks.shared.training_ledger import LearnedWorth, learned_from_people

START = "start"
EXPLORER = "explorer"
FIXED = "policy, same tasks"
"""Label of the policy's rate over the tasks that it gets in every iteration, equally weighted."""


@dataclass(frozen=True, slots=True)
class CollectedSuccess:
    """P(V=1) of the trajectories that one kind of policy collected in an iteration, with its 95 % interval."""

    iteration: str
    kind: str
    n: int
    success: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OnTask:
    """Held-out success on one task, `by` the policy of an iteration or the explorer."""

    task: str
    task_id: str
    suite: str
    by: str
    success: float
    reward: float
    """The mean raw reward; for a game, from its score."""
    n: int


class Rejection(BaseModel):
    """A gate of an iteration, and its most frequent reason."""

    gate: str
    reason: str
    n: int
    most: int
    """Trajectories that the most frequent reason rejected."""


class Sieved(BaseModel):
    """The routes of an iteration's trajectories, and the steps that are imitated."""

    iteration: int
    collected: int
    valid: int
    verified: int
    sft: int
    ct: int
    rl: int
    quarantine: int
    none: int
    steps: int
    rejections: list[Rejection]


class Tagged(BaseModel):
    """Thoughts that show a pattern."""

    pattern: str
    n: int


class ThoughtCounts(BaseModel):
    """The number of one author's thoughts, and of the tries they took."""

    author: str
    n: int
    patterns: list[Tagged]
    asked: int | None
    tries: int | None


class Choice(CurriculumChoice):
    """A choice with the task's short name."""

    task: str


@dataclass(frozen=True, slots=True)
class StageTime:
    """The duration of a stage of an iteration."""

    iteration: str
    stage: str
    seconds: float
    order: int
    """Its place in an iteration; the preparation comes first."""


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
    collected: list[CollectedSuccess]
    tasks: list[OnTask]
    funnel: list[Sieved]
    thoughts: list[ThoughtCounts]
    curriculum: list[Choice]
    quality: Quality
    docs: dict[str, str]
    """Links to the Data Docs by name."""
    stages: list[StageTime]
    policies: list[PolicyVersion]
    """The newest first."""
    standings: dict[str, str]
    """The standing of each policy, in a word."""
    people: list[LearnedWorth]
    config: str


def gather(config: Config, lake: Lake, page_folder: Path) -> Overview:
    """Reads the overview; links are relative to `page_folder`."""
    rows, stand, champion, fallen = iterations(lake), outcomes(lake), champion_if_any(lake), rolled_back(lake)
    return Overview(
        lake=lake.uri,
        champion=champion.policy_version if champion else "",
        success=success_of(lake, champion.policy_version) if champion else None,
        iterations=rows,
        outcomes={row.iteration: stand.get(row.policy or "", _kept(row)) for row in rows},
        turned=sum(row.wall_s for row in rows if row.iteration >= 0),
        between=sum(row.orchestration_s or 0.0 for row in rows if row.iteration >= 0),
        collected=collected(lake),
        tasks=tasks(lake),
        funnel=answers(lake, Sieved, "funnel"),
        thoughts=answers(lake, ThoughtCounts, "thought_counts"),
        curriculum=curriculum(lake),
        quality=quality_of(lake, None),
        docs=data_docs(config, lake, page_folder),
        stages=[
            StageTime(label(row.iteration), stage, seconds, STAGES.index(stage) if stage in STAGES else -1)
            for row in rows
            for stage, seconds in row.stages_s.items()
        ],
        policies=list(reversed(policies(lake).values())),
        standings={name: standing(row, fallen) for name, row in policies(lake).items()},
        people=people(lake),
        config=json.dumps(json.loads(config.canonical()), indent=2),
    )


def _kept(row: IterationStatus) -> str:
    """The outcome of a policy without a recorded decision."""
    return "promoted" if row.promoted else ""


def label(iteration: int) -> str:
    """The label of an iteration on an axis."""
    return START if iteration == PREPARE else label_of(iteration).removeprefix("iteration ")


def collected(lake: Lake) -> list[CollectedSuccess]:
    """P(V=1 | iteration) of collected trajectories, by kind of policy; the policy's also at a fixed mix."""
    found = verified(lake)
    own = [(row, row.kind, row.at) for row in found]
    fixed = [
        (row, FIXED, Interval(mix.rate, *mix.ci, mix.n))
        for row in found
        if row.kind == "policy" and (mix := row.fixed_mix)
    ]
    return [
        CollectedSuccess(label(row.iteration), kind, at.n, at.mean, at.low, at.high) for row, kind, at in own + fixed
    ]


def tasks(lake: Lake) -> list[OnTask]:
    """Held-out success by task: the explorer's, the untrained policy's, and every iteration's policy's."""
    evaluated = [row for row in lake.rows(Evaluation, {"suite": "suite"}) if row.success is not None]
    measured = ask(lake, "tasks").to_pylist()
    names = short_names([*(row["task_id"] for row in measured), *(row.task_id for row in evaluated)])
    trained = policies(lake)
    by_task: dict[str, list[Evaluation]] = {}
    for row in evaluated:
        if row.policy_version not in trained:
            by_task.setdefault(row.task_id, []).append(row)
    explored = [_explored(names[task], of) for task, of in sorted(by_task.items())]
    return explored + [
        OnTask(task=names[row["task_id"]], by=label(row["iteration"]), **{name: row[name] for name in _RATES})
        for row in measured
        if row["success"] is not None
    ]


_RATES = ("task_id", "suite", "success", "reward", "n")


def _explored(name: str, rows: Sequence[Evaluation]) -> OnTask:
    n = len(rows)
    success, reward = sum(bool(row.success) for row in rows) / n, sum(row.reward or 0.0 for row in rows) / n
    return OnTask(name, rows[0].task_id, "suite", EXPLORER, success, reward, n)


def curriculum(lake: Lake) -> list[Choice]:
    """Every choice, newest iteration first, heaviest first."""
    rows = lake.rows(CurriculumChoice)
    names = short_names(row.task_id for row in rows)
    named = [Choice.model_construct(**row.model_dump(), task=names[row.task_id]) for row in rows]
    return sorted(named, key=lambda row: (-row.iteration, -row.weight, row.task))


def people(lake: Lake) -> list[LearnedWorth]:
    """The people's data that each policy learned from, and its measured value, newest first, with short task names."""
    rows = [one.summary for one in reversed(learned_from_people(lake))]
    names = short_names(task for row in rows for task in row.tasks)
    return [replace(row, tasks=[names[task] for task in row.tasks]) for row in rows]


def data_docs(config: Config, lake: Lake, page_folder: Path) -> dict[str, str]:
    """Links to the stored Data Docs, by name, newest first, relative to the page."""
    found = sorted(docs_folder(config, lake).glob("i*-*/index.html"), reverse=True)
    links = {page.parent.name: Path(os.path.relpath(page, page_folder)).as_posix() for page in found}
    return {name.replace("-", " "): link for name, link in links.items()}
