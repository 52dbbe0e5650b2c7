"""Read the dashboard's data from the lake, once per state of the lake."""

import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from apps.dashboard.graph import lineage_graph
from apps.report import charts, trainings
from apps.report.gather import Choice, OnTask, Overview, curriculum, gather
from schemas.config import Config
from storage.lake import Lake
from tasks.promote.events import rolled_back
from tasks.running.budget import Account, account
from tasks.shared.paths import work_folder
from tasks.shared.policies import policies

Charts = dict[str, charts.Spec]
LATEST = 40
"""Iterations that a chart by task shows; the report has all."""
FRESH_S = 2.0
"""Seconds between two checks whether the lake has changed."""


class Gathered:
    """Answers again from memory until a table of the lake has a new version; safe to share between threads."""

    def __init__(self, config: Config, lake: Lake) -> None:
        self.config, self.lake = config, lake
        self._lock = threading.Lock()
        self._kept: dict[str, Any] = {}
        self._versions: dict[str, int] = {}
        self._looked = 0.0

    def revision(self) -> str:
        """A text that changes with the lake's tables."""
        with self._lock:
            self._look()
            return "-".join(str(version) for _, version in sorted(self._versions.items()))

    def overview(self) -> Overview:
        """All that the first page shows."""
        return self._once("overview", lambda: gather(self.config, self.lake, work_folder(self.lake, "report")))

    def curriculum(self) -> list[Choice]:
        """Every choice, newest iteration first."""
        return self._once("curriculum", lambda: curriculum(self.lake))

    def budget(self) -> list[Account]:
        """Each part of the budget: its unit, the spent and the allowed amount."""
        return self._once("budget", lambda: account(self.lake, self.config.budget))

    def charts(self, page: str) -> Charts:
        """The specifications of a page's charts by name, without empty ones; `policies/NAME` is the page of a policy.

        Raises:
            KeyError: no page of that name has charts.
        """
        make: dict[str, Callable[[], Charts]] = {
            "wheel": self._wheel,
            "curriculum": lambda: {"weights": charts.weights(latest(self.curriculum()))},
            "lineage": lambda: {"graph": lineage_graph(list(policies(self.lake).values()), rolled_back(self.lake))},
        }
        if page.startswith("policies/"):
            make[page] = lambda: {"training": trainings.curves(self.lake, [page.removeprefix("policies/")])}
        found = self._once(f"charts of {page}", make[page])
        return {name: spec for name, spec in found.items() if spec}

    def _wheel(self) -> Charts:
        found = self.overview()
        return {
            "success": charts.success(found.iterations),
            "collected": charts.collected(found.collected),
            "heat": charts.heat(self._latest_tasks(), _trajectories),
            "funnel": charts.funnel(found.funnel),
            "stages": charts.stages(found.stages),
            "training": trainings.curves(self.lake),
        }

    def _latest_tasks(self) -> list[OnTask]:
        """Success by task and iteration."""
        rows = self.overview().tasks
        kept = set(sorted({int(row.by) for row in rows if row.by.isdigit()})[-LATEST:])
        return [row for row in rows if not row.by.isdigit() or int(row.by) in kept]

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        with self._lock:
            self._look()
            if name in self._kept:
                return self._kept[name]
            versions = self._versions
        made = make()
        with self._lock:
            if versions is self._versions:
                self._kept[name] = made
        return made

    def _look(self) -> None:
        if time.monotonic() - self._looked < FRESH_S:
            return
        versions = self.lake.versions()
        self._looked = time.monotonic()
        if versions != self._versions:
            self._versions, self._kept = versions, {}


def latest(rows: list[Choice]) -> list[Choice]:
    """Rows of the last iterations."""
    kept = sorted({row.iteration for row in rows})[-LATEST:]
    return [row for row in rows if not kept or row.iteration >= kept[0]]


def _trajectories(row: OnTask) -> str:
    """The address of the trajectories of a task, and of an iteration if the row has one."""
    asked = {"task": row.task_id} | ({"iteration": row.by} if row.by.isdigit() else {})
    return f"/trajectories?{urlencode(asked)}"
