"""Train a judge on trajectories of the lake that verifiers scored.

A page is a task with a seed. A hash of its name splits the pages in the same way in every lake: 80 % for training, 10 %
for calibration and the choice of the threshold, and 10 % for the report.
"""

import hashlib
import json
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

from common.text import counted
from curation.agreement import Confusion, confusion_of
from learning.judging import USUAL, Cases, Effort, Example, LabelledPoint, Points, fit
from models.judges.local import LocalJudge, LocalOptions, page_of
from models.judges.registry import case_of, screens_of
from schemas.config import Config
from schemas.failure import UsageError
from schemas.observation import element_at, elements_of
from schemas.tables.step import Step
from schemas.tables.task import GuiTask
from storage.lake import Lake
from tasks.running.console import bar, err
from tasks.shared.gate_facts import Stored, judged_tasks
from tasks.shared.lease import NAME
from tasks.shared.material import pngs_of
from tasks.shared.paths import work_folder
from tasks.shared.trajectories import trajectories_of

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = get_args(Part)
LEAST = 10
"""Minimum number of trajectories of each outcome in a part."""
TOGETHER = 128
"""Number of trajectories whose screens are in memory at the same time. All other training data is on the disk."""
POINTS = 5
"""Number of labelled points per screen."""
LONGEST = 24
"""Maximum length of a name, in characters."""


@dataclass(frozen=True, slots=True)
class Split:
    """Verified trajectories by part, and the labelled points on training screens."""

    parts: dict[Part, Cases]
    points: Points


@dataclass(frozen=True, slots=True)
class Report:
    """Results of a judge on unseen pages, stored with the judge."""

    train: int
    """Number of training trajectories."""
    n: int
    false_accepts: int
    f1: float | None
    precision: float | None
    recall: float | None
    kappa: float | None
    false_accept_rate: float | None


@dataclass(frozen=True, slots=True)
class TrainedJudge:
    """A trained judge, with the fields of `flywheel judge --train --json`."""

    judge: str
    checkpoint: str
    """Folder of the judge."""
    threshold: float
    config: Sequence[str]
    """Config overrides that select the judge."""
    test: Report


def train_judge(
    config: Config, lake: Lake, name: str, iterations: tuple[int, int] | None, effort: Effort = USUAL
) -> TrainedJudge:
    """Train a judge, measure it, and store it in the lake's blobs and in the work folder.

    Args:
        config: config with `judge.screens` and `seed`.
        lake: the lake with the trajectories.
        name: name of the judge; an existing judge is fetched instead of trained again.
        iterations: the first iteration and the iteration after the last; all if not given.
        effort: amount of training.

    Raises:
        UsageError: the name is invalid, or there are too few verified trajectories of an outcome.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"`--train {name}` is not the name of a judge.", "Use letters, digits, dots and dashes.")
    folder, place = work_folder(lake, "judges") / name, f"judges/{name}"
    if not lake.blobs.store.sizes(place):
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            _make(config, lake, iterations, effort, Path(made))
            lake.blobs.put_directory(Path(made) / "judge", place)
    checkpoint = lake.blobs.get_directory(place, folder)
    judge = LocalJudge(LocalOptions(checkpoint=str(checkpoint)))
    threshold = judge.config.threshold
    keys = ["judge.kind=local", f"judge.options.checkpoint={checkpoint}", f"judge.threshold={threshold:g}"]
    test = Report(**json.loads((checkpoint / "report.json").read_text()))
    return TrainedJudge(judge.version, str(checkpoint), threshold, keys, test)


def _make(config: Config, lake: Lake, iterations: tuple[int, int] | None, effort: Effort, work: Path) -> None:
    """Train a judge, and write the judge and its report to the folder `judge` in a work folder."""
    with bar() as progress:
        total = lake.count("trajectories") if iterations is None else None
        shown = progress.add_task("read", total=total, message="")
        split = read_split(config, lake, iterations, work, lambda: progress.advance(shown))
        require_enough(split)
        parts = split.parts
        err().print(
            f"judge: {counted(len(parts['train']), 'trajectory', 'trajectories')} to learn from, "
            f"{len(parts['validation'])} to choose the threshold on, {len(parts['test'])} to report on"
        )
        shown = progress.add_task("judge", total=100, message="")
        note = lambda share: progress.update(shown, completed=round(100 * share))  # noqa: E731
        fitted = fit(parts["train"], parts["validation"], split.points, effort, config.seed, note)
    fitted.write(work / "judge")
    test = parts["test"]
    accepted = (fitted.scores(test) >= fitted.config.threshold).tolist()
    report = report_of(len(parts["train"]), confusion_of(accepted, (test.truth > 0).tolist()))
    (work / "judge" / "report.json").write_text(json.dumps(asdict(report)))


def report_of(train: int, found: Confusion) -> Report:
    """Return the report of a judge.

    Args:
        train: number of training trajectories.
        found: confusion counts at the judge's threshold.
    """
    rates = {name: getattr(found, name) for name in ("f1", "precision", "recall", "kappa", "false_accept_rate")}
    return Report(train, found.n, found.false_positives, **rates)


def read_split(
    config: Config,
    lake: Lake,
    iterations: tuple[int, int] | None,
    work: Path,
    note: Callable[[], None] = lambda: None,
) -> Split:
    """Read the verified trajectories of a lake, by part. Trajectories of practice pages are only training data.

    Args:
        config: config with `judge.screens` and `seed`.
        lake: the lake; a few trajectories are read at a time.
        iterations: the first iteration and the iteration after the last; all if not given.
        work: folder for temporary data.
        note: called for every trajectory.
    """
    chance = random.Random(config.seed)
    parts: dict[Part, Cases] = {part: Cases(work / part) for part in PARTS}
    split = Split(parts, Points(work / "points", chance))
    judged = judged_tasks(lake)
    practice = {task.task_id for task in lake.rows(GuiTask, {"split": "practice"})}
    for iteration in lake.iterations("trajectories"):
        if iterations is not None and not iterations[0] <= iteration < iterations[1]:
            continue
        for chunk, pngs in ended(config, lake, iteration):
            fresh: dict[Part, list[Example]] = {part: [] for part in PARTS}
            screens: dict[str, Step] = {}
            for trajectory, steps in chunk:
                note()
                if trajectory.task_id in judged:
                    continue
                page = page_of(trajectory.task_id, trajectory.seed)
                part: Part = "train" if trajectory.task_id in practice else part_of(page)
                case = case_of(trajectory.instruction, steps, pngs, config.judge)
                fresh[part].append(Example(case, bool(trajectory.success), page))
                if part == "train":
                    screens |= {step.screenshot: step for step in steps if step.screenshot in pngs}
            for part, examples in fresh.items():
                parts[part].add(examples)
            for digest, step in screens.items():
                for reading in _readings(step, pngs[digest], chance):
                    split.points.add(reading)
    return split


def ended(config: Config, lake: Lake, iteration: int) -> Iterator[tuple[list[Stored], dict[str, bytes]]]:
    """Yield the trajectories of an iteration that a judge can be asked about, in chunks, with their screens."""
    trajectories = (
        one
        for one in trajectories_of(lake, iteration)
        if one[1] and one[0].success is not None and one[0].failure_boundary is None
    )
    while chunk := list(islice(trajectories, TOGETHER)):
        shown = {digest for _, steps in chunk for digest in screens_of(steps, config.judge)}
        yield chunk, pngs_of(lake, sorted(shown))


def part_of(page: str) -> Part:
    """Return the part of the split that a page belongs to."""
    place = int.from_bytes(hashlib.sha256(page.encode()).digest()[:4], "big") / 2**32
    return "train" if place < 0.8 else "validation" if place < 0.9 else "test"


def require_enough(split: Split) -> None:
    """Raise UsageError if a part has too few trajectories of an outcome."""
    for part, cases in split.parts.items():
        successes = int(cases.truth.sum())
        least = min(successes, len(cases) - successes)
        if least < LEAST:
            raise UsageError(
                f"`--train`: {len(cases)} verified trajectories with {successes} successes are too few for {part}: "
                f"{LEAST} of either outcome are needed.",
                "Collect more with `flywheel run`.",
            )


def _readings(step: Step, png: bytes, chance: random.Random) -> Iterator[LabelledPoint]:
    """Yield points of a screen, each labelled with the smallest element at the point; none without listed elements."""
    elements = elements_of(step.elements or "[]")
    for _ in range(POINTS if elements else 0):
        if chance.random() < 0.85:
            left, top, right, bottom = chance.choice(elements).box
            x, y = left + (right - left) * chance.uniform(0.1, 0.9), top + (bottom - top) * chance.uniform(0.15, 0.85)
        else:
            x, y = chance.random(), chance.random()
        found = element_at((x, y), elements)
        name, kind = (found.name, found.kind) if found else ("", "")
        yield LabelledPoint(png, x, y, name if len(name) <= LONGEST else "", kind)
