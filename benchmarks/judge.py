"""Measure the trained judge against the verifiers, on pages and tasks that no choice used.

`python -m benchmarks.judge [--short] [--counts N N N N N N] [--lake URI] --json PATH [KEY=VALUE]...`

The explorer and the champions of four iterations of the profile `miniwob` (those of `--lake`, or of a run that is made
first) roll out the suite's tasks. A judge is trained on it as by `flywheel judge --train`: of the pages 80 % train, 10
% calibrate and choose the threshold, 10 % are left out. Then other pages of the same tasks, seeds from 5,000,000 on,
and the held-out tasks are rolled out and judged. The table also has judges with hardly any training: `all` accepts all;
`early` accepts trajectories that ended before their step limit; `changed` accepts those whose last action changed the
screen; `numbers` is a logistic regression on the judge's inputs without pixels and words (actions, counts, places),
with its threshold chosen on the same pages. All lies under FLYWHEEL_HOME, so an interrupted run resumes there.
`--short` is the explorer in the fake sandbox.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.arms import Arm, root_of
from benchmarks.harness import Bar, add_options, finish
from benchmarks.scores import Known, Scores, best_f1, quality
from environments.catalog import catalog
from learning.judging import USUAL, Cases, Effort, platt
from models.explorer import PageExplorer
from models.judges.judge import JudgeCase
from models.judges.local import LocalJudge, LocalOptions, features_of
from models.judges.registry import case_of
from models.policy import Policy
from rollout.actor import Actor
from rollout.runner import missing, roll_out_all
from rollout.trajectory import PlannedTrajectory
from schemas.config import Config, load_config
from schemas.tables.policy import PolicyVersion
from schemas.tables.task import GuiTask
from storage.lake import Lake
from tasks.collect.collect import drop_unfinished, finished, write
from tasks.judge_training import ended, read_split, train_judge
from tasks.running.console import bar as progress_bar
from tasks.shared.weights import load_policy

Row = dict[str, Any]
LEARN, TEST = 100_000, 5_000_000
"""First seeds."""
SIZES = {False: ((300, 60), (40, 10), (80, 20)), True: ((150, 0), (60, 0), (60, 0))}
"""Trajectories of each task by the explorer and by each policy: to learn from, of other pages, of held-out tasks."""
BARS = {"other pages": 0.90, "held-out tasks": 0.80}
ITERATIONS = 4
APART = 10_000
"""Seeds between one policy's pages and the next one's."""
FAKE = (
    'environments={"fake":{"sandboxes":8}}',
    'suite.tasks=["click-target","two-steps","enter-text"]',
    'suite.held_out=["click-of-three"]',
    "suite.hard=[]",
    "suite.practice=[]",
)
SHORT = Effort(reading_steps=60, epochs=8, batch=32, readings=64)


@dataclass(frozen=True)
class Judged:
    """One set of test trajectories, and what each judge says."""

    name: str
    tasks: list[str]
    known: Known
    scores: dict[str, tuple[Scores, float]]
    """By judge, with its threshold."""
    ms: float
    """Of the trained judge, per trajectory, from pictures in memory to the score."""

    def rows(self) -> list[Row]:
        """One per judge."""
        return [
            {"set": self.name, "judge": judge, **quality(scores, self.known, threshold), "threshold": threshold,
             "ms": self.ms if judge == "trained" else None}
            for judge, (scores, threshold) in self.scores.items()
        ]  # fmt: skip

    def by_task(self) -> list[Row]:
        """What the trained judge does on each task."""
        scores, threshold = self.scores["trained"]
        rows: list[Row] = []
        for task in sorted(set(self.tasks)):
            at = np.array([one == task for one in self.tasks])
            found = quality(scores[at], self.known[at], threshold)
            rows.append({"set": self.name, "task": task} | {key: found[key] for key in TOLD})
        return rows


TOLD = ("n", "successes", "F1", "precision", "recall", "false accepts", "ROC AUC")


def main(words: Sequence[str] | None = None) -> int:
    """Gathers, trains, measures; exit code 1 if a bar is missed."""
    asked = _options(words)
    overrides = [*(FAKE if asked.short else ()), *asked.overrides]
    folder = root_of(asked.config, overrides).parents[1] / "judge" / root_of(asked.config, overrides).name

    def config(name: str) -> Config:
        return load_config(asked.config, [*overrides, f"lake.uri={folder / name}"])

    made = None if asked.short else _champions(asked, overrides, folder)
    versions = sorted(one.policy_version for one in made.rows(PolicyVersion, {"kind": "iteration"})) if made else []
    learn, pages, tasks = asked.sizes
    lake = gather(config("learn"), made, versions, "train", LEARN, *learn)
    trained = train_judge(config("learn"), lake, "benchmark", None, SHORT if asked.short else USUAL)
    judge = LocalJudge(LocalOptions(checkpoint=trained.checkpoint))
    with tempfile.TemporaryDirectory() as work:
        parts = read_split(config("learn"), lake, None, Path(work)).parts
        plain = Numbers(parts["train"], parts["validation"])
    sets = [
        _judged(name, config(place), gather(config(place), made, versions, split, TEST, *counts), judge, plain)
        for name, place, split, counts in (
            ("other pages", "pages", "train", pages),
            ("held-out tasks", "tasks", "held_out", tasks),
        )
    ]
    rows, by_task = [row for one in sets for row in one.rows()], [row for one in sets for row in one.by_task()]
    own = {"set": "learned from", "judge": "trained", "n": trained.test.train, "left out": asdict(trained.test)}
    found = {row["set"]: row["F1"] for row in rows if row["judge"] == "trained"}
    bars = [Bar(f"F1 on {name}", found[name] or 0.0, bar, "higher") for name, bar in BARS.items()]
    return finish("judge", [*rows, *by_task, own], bars, asked, [rows, by_task])


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = add_options(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--config", default="configs/miniwob.toml")
    parser.add_argument("--lake", help="whose policies act; a wheel is turned first if not given")
    parser.add_argument(
        "--counts", type=int, nargs=6, metavar="N", help="sizes of the three sets, in their order below"
    )
    parser.add_argument("overrides", nargs="*")
    asked = parser.parse_args(words)
    given = asked.counts and tuple(zip(asked.counts[::2], asked.counts[1::2], strict=True))
    asked.sizes = given or SIZES[asked.short]
    return asked


def _champions(asked: argparse.Namespace, overrides: Sequence[str], folder: Path) -> Lake:
    """The lake whose policies act."""
    if asked.lake:
        return Lake.open(load_config(asked.config, [*overrides, f"lake.uri={asked.lake}"]).lake, create=False)
    wheel = Arm("wheel", 0, asked.config, folder / "wheel", (*overrides, f"lake.uri={folder}/wheel/lake"))
    wheel.run_until(ITERATIONS)
    return Lake.open(load_config(asked.config, wheel.overrides).lake, create=False)


def gather(
    config: Config, made: Lake | None, versions: Sequence[str], split: str, first: int, explorer: int, each: int
) -> Lake:
    """Roll out the tasks of a split at temperature 1, except what the lake has already.

    Args:
        config: `lake.uri` is the lake that they are written to.
        made: the lake of the policies.
        versions: the policies.
        split: `train` or `held_out`.
        first: the first seed.
        explorer: trajectories of each task by the explorer.
        each: trajectories of each task by each policy.
    """
    lake = Lake.open(config.lake)
    tasks = [task for task in catalog(config) if task.split == split]
    lake.upsert("tasks", tasks)
    drop_unfinished(lake, 0)
    counts = {PageExplorer.version: explorer} | dict.fromkeys(versions, each)
    planned = [
        _planned(lake, task, version, first + APART * number + seed)
        for task in tasks
        for number, (version, count) in enumerate(counts.items())
        for seed in range(count)
    ]
    left = missing(random.Random(0).sample(planned, len(planned)), finished(lake, 0))
    with ExitStack() as stack:
        policies: list[Policy] = [
            PageExplorer(),
            *(load_policy(config, made, one) for one in versions if made and left),
        ]
        actors = {one.version: stack.enter_context(Actor(one, 1.0)) for one in policies}
        sink = lambda chunk: write(lake, chunk)  # noqa: E731
        actor_of = lambda one: [actors[one.policy_version]]  # noqa: E731
        roll_out_all(config, left, actor_of, sink, progress_bar, "gather", for_data=True)
    return lake


def _planned(lake: Lake, task: GuiTask, version: str, seed: int) -> PlannedTrajectory:
    return PlannedTrajectory(
        lake_id=lake.lake_id,
        run_id=lake.lake_id,
        iteration=0,
        task=task,
        seed=seed,
        policy="explorer" if version == PageExplorer.version else "policy",
        policy_version=version,
        temperature=1.0,
    )


class Numbers:
    """A logistic regression on the numbers of cases."""

    def __init__(self, train: Cases, validation: Cases) -> None:
        x, y = _numbers_of(train), train.truth
        self._mean, self._std = x.mean(0), x.std(0).clamp(min=1e-3)
        self._weights = torch.zeros(x.shape[1] + 1, requires_grad=True)
        optimiser = torch.optim.LBFGS([self._weights], max_iter=200, line_search_fn="strong_wolfe")

        def loss() -> torch.Tensor:
            optimiser.zero_grad()
            value = torch.nn.functional.binary_cross_entropy_with_logits(self._logits(x), y)
            value = value + 1e-3 * self._weights.square().sum()
            value.backward()
            return value

        optimiser.step(loss)
        logits = self._logits(_numbers_of(validation)).detach()
        self._scale, self._shift = platt(logits, validation.truth)
        self.threshold = best_f1(self.scores(_numbers_of(validation)), (validation.truth > 0).numpy())

    def scores(self, x: torch.Tensor) -> Scores:
        """(n,) of numbers (n, f)."""
        return torch.sigmoid(self._scale * self._logits(x).detach() + self._shift).numpy().astype(np.float64)

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self._mean) / self._std @ self._weights[:-1] + self._weights[-1]


def _numbers_of(cases: Cases) -> torch.Tensor:
    return cases.batch(np.arange(len(cases)))["numbers"]


def _judged(name: str, config: Config, lake: Lake, judge: LocalJudge, plain: Numbers) -> Judged:
    limits = {task.task_id: task.max_steps for task in lake.rows(GuiTask)}
    tasks, known = list[str](), list[bool]()
    scores: dict[str, list[float]] = {one: [] for one in ("trained", "numbers", "early", "changed", "all")}
    seconds = 0.0
    for chunk, pngs in ended(config, lake, 0):
        cases = [case_of(one.instruction, steps, pngs, config.judge) for one, steps in chunk]
        began = time.perf_counter()
        found = judge.score(cases)
        seconds += time.perf_counter() - began
        scores["trained"] += [one.score or 0.0 for one in found]
        scores["numbers"] += plain.scores(
            torch.from_numpy(np.stack([features_of(one).numbers for one in cases]))
        ).tolist()
        scores["early"] += [float(len(steps) < limits[one.task_id]) for one, steps in chunk]
        scores["changed"] += [float(_changed(one)) for one in cases]
        scores["all"] += [1.0] * len(cases)
        tasks += [one.task_id for one, _ in chunk]
        known += [bool(one.success) for one, _ in chunk]
    thresholds = {"trained": judge.config.threshold, "numbers": plain.threshold}
    given = {one: (np.array(values), thresholds.get(one, 0.5)) for one, values in scores.items()}
    return Judged(name, tasks, np.array(known), given, 1000 * seconds / max(1, len(known)))


def _changed(case: JudgeCase) -> bool:
    return len(case.screens) > 1 and case.screens[-1] != case.screens[-2]


if __name__ == "__main__":
    sys.exit(main())
