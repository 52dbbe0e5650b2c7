"""Record the measures of a training as they arrive, in the table `training_steps` and in trackers.

Each tracker has its own thread. The training never waits for a tracker, and an error of a tracker never ends it.
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
from learning.tracking import TRACKERS, Point, Tracker, Training
from schemas.config import Config
from schemas.table import utc_now
from schemas.tables.policy import MEASURES, TRAINING, TrainingStep
from storage.lake import Lake
from tasks.running.console import err
from tasks.shared.material import PolicyRecipe

PATIENCE_S = 60.0
"""Maximum seconds to wait for the remaining points of a tracker at the end of a training."""


class Feed:
    """Sends points to one tracker.

    Args:
        name: name of the tracker, for messages.
        make: makes the tracker.
        resumed: number of kept steps of earlier starts.
        warn: called with the tracker's first error, after which nothing more is sent.
    """

    def __init__(self, name: str, make: Callable[[], Tracker], resumed: int, warn: Callable[[str], None]) -> None:
        self._name, self._make, self._resumed, self._warn = name, make, resumed, warn
        self._waiting: SimpleQueue[Sequence[Point] | bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def log(self, points: Sequence[Point]) -> None:
        """Queues points and returns at once."""
        self._waiting.put(points)

    def finish(self, whole: bool, patience_s: float = PATIENCE_S) -> None:
        """Ends the tracker's run after all points are sent, or gives it up after `patience_s` seconds."""
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
        except Exception as error:  # an error of a tracker must not end the training
            reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            self._warn(f"tracker {self._name}: {reason}; nothing more is sent to it, the lake has every step.")


EVERY_S = 15.0
"""Seconds between two writes to the lake. Each write is a commit of the table."""
HURRIED_S = 5.0
"""Seconds that a failed or interrupted training waits for a tracker."""


class Recorder:
    """Records one start of a training. The end of its `with` block is the end of the training.

    Args:
        config: config with the trackers and other recorded values.
        lake: the lake for the measures.
        recipe: recipe of the policy in training.
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
        """Handle a message of the trainer. Most messages have no measures."""
        if message.resumed is not None:
            self._resumed = message.resumed
        if message.step is None or message.step <= self._last:
            return  # a new start within this run repeats steps
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
        """Delete rows of steps that this start repeats, and start the trackers."""
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
    """Store the profiler's traces of a training next to its checkpoint, and return the numbers for the policy's row."""
    there = job.profiles.is_dir()
    return {"profile": lake.blobs.put_directory(job.profiles, f"profiles/{version}")} if there else {}
