"""From what failed to samples that do not imitate it: continual training's set (UI-TARS-2, arXiv 2509.02544, D_CT).

Three things are true of a failed play whatever it was meant for: which action led from one screen to the next (inverse
dynamics), what changed between them (state transition), and what stands where on a screen (perception). No sample here
knows the instruction, so no action of a failure is ever a reply to it. The paper prints no mixture: the kinds that
there are share the training equally, tasks share inside a kind, samples inside a task.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from curation.dataset import questions_of
from schemas.sample import Question, TrainSample

Rows = Sequence[Mapping[str, Any]]


def continual_samples(rows: Rows) -> list[TrainSample]:
    """The weighed samples of the annotations of failed plays.

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
            action=row["action"],
            kind=row["kind"],
        )
        found.setdefault((row["kind"], row["before"], row["after"]), sample)
    return list(found.values())
