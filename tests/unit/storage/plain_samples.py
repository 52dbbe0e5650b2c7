"""Samples and their weights made row by row in plain Python, to hold against what the queries of training say."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from curation.selection import noted_screens, shortest_way
from learning.data.sample import Past, Question, TrainSample
from schemas.action import Click, from_json

Rows = Sequence[Mapping[str, Any]]
GROUNDING_SHARE = 0.15
"""The part of a task's training that goes to screens of its failed trajectories."""


def samples_of(
    trajectories: Rows,
    steps: Mapping[str, Rows],
    thoughts: Mapping[tuple[str, int], str],
    questions: Mapping[str, Sequence[Question]],
    history_images: int,
) -> list[TrainSample]:
    """One sample per kept step of accepted (`sft`) trajectories; a grounding screen per step of failed (`ct`) ones.

    Trajectories of one group that did the very same thing teach it once.

    Args:
        trajectories: rows with trajectory_id, task_id, group_id, instruction, route.
        steps: rows in order by trajectory: step, screenshot, thought, action.
        thoughts: annotated thoughts by (trajectory, step), for steps without one of their own.
        questions: grounding questions by screenshot.
        history_images: how many of the last screenshots a sample shows.
    """
    samples: list[TrainSample] = []
    asked: set[str] = set()
    grouped: set[tuple[str, TrainSample]] = set()
    for trajectory in trajectories:
        chosen = steps.get(trajectory["trajectory_id"], ())
        if trajectory["route"] == "sft":
            made = _imitation(trajectory, chosen, thoughts, questions, history_images)
            if (group := trajectory["group_id"]) is not None:
                made = [sample for sample in made if (group, sample) not in grouped]
                grouped.update((group, sample) for sample in made)
            samples += made
            asked.update(row["screenshot"] for row in chosen)
    for trajectory in trajectories:
        if trajectory["route"] == "ct":
            for row in steps.get(trajectory["trajectory_id"], ()):
                if row["screenshot"] not in asked and questions.get(row["screenshot"]):
                    asked.add(row["screenshot"])
                    samples.append(_grounding(trajectory, row, questions))
    return samples


def weigh(
    samples: Sequence[TrainSample],
    success: Mapping[str, float],
    balance: float,
    practice: Collection[str] = (),
    practice_share: float = 0.0,
) -> list[TrainSample]:
    """Samples with their weights: tasks by weakness (`weakness`), equal inside a task.

    Args:
        samples: all there are.
        success: the parent's success by task.
        balance: how far weakness decides; with 0 tasks share equally.
        practice: the tasks that are practice pages.
        practice_share: what all their samples together weigh, of 1; every one of them the same.
    """
    counts = Counter((sample.task_id, not sample.actions) for sample in samples)
    practised = sum(sample.task_id in practice for sample in samples)
    suite = sorted({sample.task_id for sample in samples} - set(practice))
    shares = weakness(success, suite, balance) if suite else {}
    mass = practice_share if practised and suite else float(bool(practised))
    raw = []
    for sample in samples:
        part = GROUNDING_SHARE if not sample.actions else 1.0 - GROUNDING_SHARE
        raw.append(shares.get(sample.task_id, 0.0) * part / counts[sample.task_id, not sample.actions])
    scale = (1.0 - mass) / sum(raw) if suite else 0.0
    return [
        replace(sample, weight=mass / practised if sample.task_id in practice else scale * weight)
        for sample, weight in zip(samples, raw, strict=True)
    ]


def questions_of(annotations: Rows) -> dict[str, list[Question]]:
    """Grounding questions by screenshot, each once, from annotation rows joined with their step's screenshot."""
    found: dict[str, set[Question]] = {}
    for row in annotations:
        click = from_json(row["action"])
        if isinstance(click, Click):
            place = (float(np.float32(part)) for part in (click.x, click.y))
            found.setdefault(row["screenshot"], set()).add(Question(row["thought"], *place))
    return {screen: sorted(asked, key=lambda one: (one.name, one.x, one.y)) for screen, asked in found.items()}


def _imitation(
    trajectory: Mapping[str, Any],
    chosen: Rows,
    thoughts: Mapping[tuple[str, int], str],
    questions: Mapping[str, Sequence[Question]],
    history_images: int,
) -> list[TrainSample]:
    kept = [chosen[index] for index in shortest_way(noted_screens([SimpleNamespace(**row) for row in chosen]))]
    past: list[Past] = []
    samples = []
    for number, row in enumerate(kept):
        thought = row["thought"] or thoughts.get((trajectory["trajectory_id"], row["step"]), "")
        screens = tuple(seen["screenshot"] for seen in kept[max(0, number + 1 - history_images) : number + 1])
        samples.append(
            TrainSample(
                task_id=trajectory["task_id"],
                screenshots=screens,
                instruction=trajectory["instruction"],
                history=tuple(past),
                thought=thought,
                actions=tuple(row["actions"]),
                questions=tuple(questions.get(row["screenshot"], ())),
            )
        )
        past.append(Past(thought, tuple(row["actions"])))
    return samples


def _grounding(
    trajectory: Mapping[str, Any], row: Mapping[str, Any], questions: Mapping[str, Sequence[Question]]
) -> TrainSample:
    return TrainSample(
        task_id=trajectory["task_id"],
        screenshots=(row["screenshot"],),
        instruction=trajectory["instruction"],
        questions=tuple(questions[row["screenshot"]]),
    )


def continual_samples(rows: Rows) -> list[TrainSample]:
    """The weighed samples of the annotations of failed trajectories.

    Args:
        rows: of `storage/queries/continual.sql`: kind, task_id, screenshot, before, after, thought, action.
    """
    questions = questions_of([row for row in rows if row["kind"] == "grounding"])
    tasks = {row["screenshot"]: row["task_id"] for row in reversed(rows)}
    perceived = [made for screen, asked in questions.items() for made in _perception(tasks[screen], screen, asked)]
    return share_out([*perceived, *_first_of_each(row for row in rows if row["kind"] != "grounding")])


def share_out(samples: Sequence[TrainSample]) -> list[TrainSample]:
    """The samples with weights that add up to 1: kinds share equally, then tasks, then samples."""
    counts = Counter((sample.kind, sample.task_id) for sample in samples)
    tasks = Counter(kind for kind, _ in counts)
    return [
        replace(sample, weight=1 / (len(tasks) * tasks[sample.kind] * counts[sample.kind, sample.task_id]))
        for sample in samples
    ]


def _perception(task_id: str, screen: str, questions: Sequence[Question]) -> tuple[TrainSample, TrainSample]:
    """Where things are, and what is at their places."""
    where = TrainSample(task_id=task_id, screenshots=(screen,), instruction="", questions=tuple(questions))
    return where, replace(where, kind="naming")


def _first_of_each(rows: Iterable[Mapping[str, Any]]) -> list[TrainSample]:
    """One sample per kind and pair of screens: two actions with the same effect would contradict each other."""
    found: dict[tuple[str, str, str], TrainSample] = {}
    for row in rows:
        sample = TrainSample(
            task_id=row["task_id"],
            screenshots=(row["before"], row["after"]),
            instruction="",
            thought=row["thought"],
            actions=(row["action"],) if row["action"] else (),
            kind=row["kind"],
        )
        found.setdefault((row["kind"], row["before"], row["after"]), sample)
    return list(found.values())


def weakness(success: Mapping[str, float], tasks: Sequence[str], balance: float) -> dict[str, float]:
    """How much of the training each task gets: more where the policy fails, but never nothing.

    Args:
        success: the policy's greedy success by task, in [0, 1]; a task without one counts as 0.5.
        tasks: the tasks that have data.
        balance: 0 for equal shares, 1 for shares in proportion to 0.15 + failure rate.

    Returns:
        Shares that add up to 1.
    """
    raw = {task: 1.0 - balance + balance * (0.15 + 1.0 - success.get(task, 0.5)) for task in tasks}
    mass = sum(raw.values())
    return {task: value / mass for task, value in raw.items()}
