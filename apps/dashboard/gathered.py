"""Read the dashboard's data from the lake, once per state of the lake."""

import threading
import time
from collections.abc import Callable, Container
from typing import Any
from urllib.parse import quote, urlencode

import altair as alt
import polars as pl

from apps.report import charts
from apps.report.gather import EXPLORER, Overview, curriculum, gather
from flywheel import OpenLake
from flywheel.comparison import HistoryComparison, compare_runs
from schemas.config import Config
from schemas.tables.policy import PolicyVersion
from storage.lake import Lake
from tasks.promote.events import ROLLED_BACK, rolled_back, standing
from tasks.running.budget import Account, account
from tasks.running.curve import Spec, label, success_chart
from tasks.shared.paths import work_folder
from tasks.shared.policies import champion_if_any, policies

Charts = dict[str, Spec]
LATEST = 40
"""Number of iterations in a chart by task; the report has all."""
FRESH_S = 2.0
"""Seconds between two checks for changes of the lake."""
LANES = {"initial": 0, "iteration": 0, "intermediate": 1, "retrained": 2, "merged": 3, "adopted": 4, "pretrained": 5}
STATUS = {
    "champion": "#1f7a4a",
    "retired": "#8fc1a3",
    "candidate": "#3b7dd8",
    "held": "#d08a2e",
    "intermediate": "#b9b4ac",
    "rejected": "#b3402e",
    ROLLED_BACK: "#7a3b6b",
}
POLICIES = 60
"""Maximum number of policies in the graph, which shows the newest ones."""


class Gathered:
    """Caches answers until a table of the lake has a new version; safe to share between threads."""

    def __init__(self, config: Config, lake: Lake) -> None:
        self.config, self.lake, self.opened = config, lake, OpenLake(lake)
        self._lock = threading.Lock()
        self._kept: dict[str, Any] = {}
        self._versions: dict[str, int] = {}
        self._looked = 0.0

    def revision(self) -> str:
        """Returns a text that changes with the lake's tables."""
        with self._lock:
            self._look()
            return "-".join(str(version) for _, version in sorted(self._versions.items()))

    def overview(self) -> Overview:
        """Returns the data of the first page."""
        return self._once("overview", lambda: gather(self.config, self.opened, work_folder(self.lake, "report")))

    def curriculum(self) -> pl.DataFrame:
        """Returns every choice, newest iteration first."""
        return self._once("curriculum", lambda: curriculum(self.opened))

    def gates(self) -> list[str]:
        """Returns the names of the gates that have judged trajectories."""
        query = "SELECT DISTINCT gate FROM verdicts ORDER BY gate"
        return self._once("gates", lambda: self.opened.sql(query)["gate"].to_list())

    def champion(self) -> str:
        """Returns the champion's version; empty before the first policy."""
        return self._once("champion", lambda: row.policy_version if (row := champion_if_any(self.lake)) else "")

    def budget(self) -> list[Account]:
        """Returns each part of the budget, with its unit, spent amount and limit."""
        return self._once("budget", lambda: account(self.lake, self.config.budget))

    def runs_compared(self, a: str, b: str) -> HistoryComparison:
        """Returns two runs and their differences; raises UsageError for an unknown run."""
        return self._once(f"runs {a} {b}", lambda: compare_runs(self.lake, self.config.budget, a, b))

    def charts(self, page: str) -> Charts:
        """Returns the specifications of a page's charts by name, without empty ones; `policies/NAME` is the page of a
        policy, and `runs/A/B` that of two runs.

        Raises:
            KeyError: the page does not exist or has no charts.
        """
        make: dict[str, Callable[[], dict[str, Spec | None]]] = {
            "wheel": self._wheel,
            "curriculum": lambda: {"weights": charts.weights(self._latest_choices())},
            "lineage": lambda: {"graph": lineage_graph(list(policies(self.lake).values()), rolled_back(self.lake))},
        }
        if page.startswith("runs/"):
            make[page] = lambda: {"curves": charts.curves(self.runs_compared(*page.split("/")[1:]))}
        if page.startswith("policies/"):
            make[page] = lambda: {"training": charts.training(self.opened.training([page.removeprefix("policies/")]))}
        found = self._once(f"charts of {page}", make[page])
        return {name: spec for name, spec in found.items() if spec}

    def _wheel(self) -> dict[str, Spec | None]:
        found = self.overview()
        return {
            "success": success_chart(found.iterations),
            "collected": charts.collected(found.collected),
            "heat": charts.heat(self._latest_tasks(), _evaluated),
            "funnel": charts.funnel(found.funnel),
            "stages": charts.stages(found.stages),
            "training": charts.training(found.training),
        }

    def _latest_tasks(self) -> pl.DataFrame:
        """Returns success by task, for the last iterations and the explorer."""
        rows, number = self.overview().tasks, pl.col("by").cast(pl.Int64, strict=False)
        kept = rows.select(number.unique().top_k(LATEST))["by"]
        return rows.filter(number.is_null() | number.is_in(kept.to_list()))

    def _latest_choices(self) -> pl.DataFrame:
        """Returns the choices of the last iterations."""
        rows = self.curriculum()
        return rows.filter(pl.col("iteration").is_in(rows["iteration"].unique().top_k(LATEST).to_list()))

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


def _evaluated(row: dict[str, Any]) -> str:
    """Returns the address of the trajectories that the evaluation of a cell keeps."""
    asked = {"evaluations": "true", "task": row["task_id"], "policy": row["policy_version"] or EXPLORER}
    return f"/trajectories?{urlencode(asked)}"


def lineage_graph(policies: list[PolicyVersion], fallen: Container[str] = ()) -> Spec | None:
    """Makes a Vega-Lite specification, with policies from left to right in the order of creation and a row per kind;
    `fallen` are rolled-back policies."""
    shown = sorted(policies, key=lambda one: one.created_at)[-POLICIES:]
    if not shown:
        return None
    last = max(LANES.values()) + 1
    places = {one.policy_version: (at, LANES.get(one.kind, last)) for at, one in enumerate(shown)}
    points = [
        {
            "policy": one.policy_version,
            "kind": one.kind,
            "status": standing(one, fallen),
            "method": one.method,
            "iteration": label(one.iteration),
            "link": f"/policies/{quote(one.policy_version, safe='')}",
            **dict(zip(("x", "lane"), places[one.policy_version], strict=True)),
        }
        for one in shown
    ]
    ways = [
        dict(zip(("x", "lane", "x2", "lane2"), places[one.parent] + places[one.policy_version], strict=True))
        for one in shown
        if one.parent in places
    ]
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.5, len(shown) - 0.5], nice=False))
    y = alt.Y("lane:Q", axis=None, scale=alt.Scale(domain=[last + 0.6, -0.6], nice=False))
    line = alt.Chart(alt.Data(values=ways)).mark_rule(color="#9a8f80", strokeWidth=1.5)
    base = alt.Chart(alt.Data(values=points)).encode(
        x=x, y=y, href="link:N", tooltip=["policy:N", "kind:N", "status:N", "method:N", "iteration:N"]
    )
    colour = alt.Color("status:N", title=None, scale=alt.Scale(domain=list(STATUS), range=list(STATUS.values())))
    chart = alt.layer(
        line.encode(x=x, y=y, x2="x2:Q", y2="lane2:Q"),
        base.mark_circle(size=170, opacity=1, cursor="pointer").encode(color=colour),
        base.mark_text(dy=16, fontSize=11, cursor="pointer", color="#7b7f86").encode(text="policy:N"),
    )
    return chart.properties(width="container", height=260).to_dict()
