"""Parse OSWorld's task files, and report why a task cannot be played.

A task is a JSON file with `id`, `instruction`, `config` (steps that set it up) and `evaluator` (the readings of the
machine at the end, and their score). A file with an unsupported step, reading or score is open: it is listed with the
reason and never played, since its reward would have another meaning.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environments.osworld.reading import FILES, READINGS
from environments.osworld.scores import OF_FILES, SCORES
from environments.osworld.setting_up import STEPS
from schemas.failure import UsageError


@dataclass(frozen=True, slots=True)
class Metric:
    """One score of a task."""

    score: str
    result: Mapping[str, Any] | None
    expected: Mapping[str, Any] | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VmTask:
    """The task of a file."""

    template: str
    """Name of the task's file."""
    instruction: str
    steps: tuple[Mapping[str, Any], ...]
    after: tuple[Mapping[str, Any], ...]
    """Steps before the scoring."""
    metrics: tuple[Metric, ...]
    any_of: bool
    """Whether one full score is enough."""
    infeasible: bool
    """Whether the only correct end is the report that the task cannot be done."""
    domain: str


@dataclass(slots=True)
class TaskFiles:
    """The tasks of a folder."""

    known: dict[str, VmTask] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    """Reason why a task is not played, by the name of its file."""

    def summary(self) -> str:
        """Counts playable and open tasks, with the reasons."""
        reasons = ", ".join(f"{reason} ({count})" for reason, count in Counter(self.open.values()).most_common())
        return f"{len(self.known)} tasks" + (f"; {len(self.open)} are open: {reasons}" if self.open else "")


def read_tasks(folder: Path, key: str = "environments.osworld.folder") -> TaskFiles:
    """Reads the tasks of all files below a folder.

    Args:
        folder: the folder.
        key: the config key that names it, for the error.

    Raises:
        UsageError: the folder does not exist, or two files have the same name.
    """
    if not folder.is_dir():
        raise UsageError(f"`{key}`: there is no folder {folder} of OSWorld's tasks.", "Correct the path.")
    found = TaskFiles()
    for place in sorted(folder.rglob("*.json")):
        if place.stem in found.known or place.stem in found.open:
            raise UsageError(f"Two files below {folder} are called {place.name}.", "Keep one of them.")
        try:
            found.known[place.stem] = _task(place)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            found.open[place.stem] = str(error) if isinstance(error, ValueError) else f"no task: {error!r}"
    return found


def _task(place: Path) -> VmTask:
    """Parses the task of a file; raises ValueError with the reason why it is open."""
    given = json.loads(place.read_bytes())  # in UTF-8, with a byte order mark or without
    evaluator = given["evaluator"]
    steps, after = tuple(given.get("config") or ()), tuple(evaluator.get("postconfig") or ())
    infeasible = evaluator["func"] == "infeasible"
    metrics = () if infeasible else tuple(_metrics(evaluator))
    for kind, known, names in (
        ("step", STEPS, [step["type"] for step in (*steps, *after)]),
        ("score", SCORES, [metric.score for metric in metrics]),
        ("reading", READINGS, [part["type"] for one in metrics for part in (one.result, one.expected) if part]),
    ):
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"{kind} {unknown[0]}")
    for one in metrics:
        if one.result and (one.result["type"] in FILES) != (one.score in OF_FILES):
            raise ValueError(f"score {one.score} of {one.result['type']}")
    return VmTask(
        place.stem, given["instruction"], steps, after, metrics, evaluator.get("conj", "and") == "or", infeasible,
        str(given.get("snapshot") or place.parent.name),
    )  # fmt: skip


def _metrics(evaluator: Mapping[str, Any]) -> Iterator[Metric]:
    scores = evaluator["func"]
    if isinstance(scores, str):
        scores = [scores]
        parts = [[evaluator.get(name) or None] for name in ("result", "expected", "options")]
    else:
        parts = [evaluator.get(name) or [None] * len(scores) for name in ("result", "expected", "options")]
    for score, result, expected, options in zip(scores, *parts, strict=True):
        yield Metric(score, result, expected, options or {})
