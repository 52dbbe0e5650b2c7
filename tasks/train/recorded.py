"""Record a training's measures as they arrive: rows of `training_steps` in the lake, and trackers.

Feeds a tracker from a thread of its own: the training never waits for it, and never ends because of it.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from learning.job import Job, TrainerReport
from learning.tracking.tracker import TRACKERS, Point, Tracker, Training
from schemas.config import Config
from schemas.table import utc_now
from schemas.tables.policy import MEASURES, TRAINING, TrainingStep
from storage.lake import Lake
from tasks.running.console import err
from tasks.shared.material import PolicyRecipe

PATIENCE_S = 60.0
"""Maximum seconds that the end of a training waits for a tracker's remaining points."""


class Feed:
    """One tracker's run.

    Args:
        name: the tracker's, for messages.
        make: makes it.
        resumed: steps that are kept of earlier starts.
        warn: called once with the tracker's error; nothing more is sent then.
    """

    def __init__(self, name: str, make: Callable[[], Tracker], resumed: int, warn: Callable[[str], None]) -> None:
        self._name, self._make, self._resumed, self._warn = name, make, resumed, warn
        self._waiting: SimpleQueue[Sequence[Point] | bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def log(self, points: Sequence[Point]) -> None:
        """Queues points; returns at once."""
        self._waiting.put(points)

    def finish(self, whole: bool, patience_s: float = PATIENCE_S) -> None:
        """Ends the run once everything is sent; abandons one that takes longer than `patience_s`."""
        self._waiting.put(whole)
        self._thread.join(patience_s)
        if self._thread.is_alive():
            self._warn(
                f"tracker {self._name}: given up, it has taken {patience_s:g} s to end; the lake has every step."
            )

    def _run(self) -> None:
        try:
            tracker = self._make()
            tracker.start(self._resumed)
            while not isinstance(given := self._waiting.get(), bool):
                tracker.log(given)
            tracker.finish(given)
        except Exception as error:  # the training goes on after any error of a tracker
            reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            self._warn(f"tracker {self._name}: {reason}; nothing more is sent to it, the lake has every step.")


EVERY_S = 15.0
"""Seconds between two writes: each is a commit of the table."""
HURRIED_S = 5.0
"""Seconds that a failed or interrupted training waits for a tracker."""


class Recorder:
    """Recorder of one start of a training; its `with` block ends with the training.

    Args:
        config: has the trackers, and other recorded values.
        lake: the lake for its steps.
        recipe: the policy that it makes.
    """

    def __init__(self, config: Config, lake: Lake, recipe: PolicyRecipe, every_s: float = EVERY_S) -> None:
        self._config, self._lake, self._recipe, self._every_s = config, lake, recipe, every_s
        self._resumed, self._begun, self._written = 0, False, time.monotonic()
        self._last = -1
        self._waiting: list[Point] = []
        self._feeds: list[Feed] = []

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._write()
        for feed in self._feeds:
            feed.finish(kind is None, PATIENCE_S if kind is None else HURRIED_S)

    def hear(self, message: TrainerReport) -> None:
        """Handle a message of the trainer; most are no points of its curve."""
        if message.resumed is not None:
            self._resumed = message.resumed
        if message.step is None or message.step <= self._last:
            return  # repeated after a new start within this run
        self._last = message.step
        if not self._begun:
            self._begin()
        paced = {"loss": message.loss, "samples_per_s": message.samples_per_s}
        point = Point(message.step, {**paced, **message.measures}, time.time())
        self._waiting.append(point)
        for feed in self._feeds:
            feed.log([point])
        if time.monotonic() - self._written > self._every_s:
            self._write()

    def _begin(self) -> None:
        """Forget the steps of an earlier start that are repeated, and start the trackers."""
        self._begun, recipe = True, self._recipe
        where = f"policy_version = '{recipe.version}' AND step > {self._resumed}"
        self._lake.delete(TRAINING.name, where)
        tracking, config = self._config.tracking, self._config.model_dump(mode="json")
        training = Training(
            self._lake.lake_id, recipe.version, recipe.parent, recipe.iteration, self._config.train.method, config
        )
        for name, options in TRACKERS.read(tracking).items():
            make: Callable[[], Any] = partial(TRACKERS.class_of(name), options, training)
            self._feeds.append(Feed(name, make, self._resumed, lambda text: err().print(text, style="yellow")))

    def _write(self) -> None:
        rows = [_row(self._recipe, point) for point in self._waiting]
        self._written = time.monotonic()
        if rows:
            self._lake.upsert(TRAINING.name, rows)
            self._waiting.clear()


def _row(recipe: PolicyRecipe, point: Point) -> TrainingStep:
    other = {name: value for name, value in point.measures.items() if name not in MEASURES}
    return TrainingStep(
        policy_version=recipe.version,
        step=point.step,
        iteration=recipe.iteration,
        loss=point.measures["loss"],
        **{name: point.measures.get(name) for name in MEASURES if name != "loss"},
        other=json.dumps(other, sort_keys=True),
        written_at=utc_now(),
    )


def keep_profile(lake: Lake, job: Job, version: str) -> dict[str, str]:
    """Store the traces of a training next to its checkpoint; return the numbers to store with the policy."""
    there = job.profiles.is_dir()
    return {"profile": lake.blobs.put_directory(job.profiles, f"profiles/{version}")} if there else {}
