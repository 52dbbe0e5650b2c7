"""Serve the dashboard's pages and their polling requests; the server escapes every text."""

import json
from typing import Annotated, Any

import polars as pl
from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import HTMLResponse, JSONResponse, Response

from apps.commands.lineage import lineage_of_policy
from apps.desk.api import Iteration
from apps.desk.desk import Desk
from apps.desk.pages import Chosen, Number, page
from apps.quality.gather import quality_of
from apps.report.build import vega
from apps.report.charts import training
from flywheel.frames import POINTS, rows_of
from schemas.failure import UsageError
from schemas.tables.trajectory import Trajectory
from tasks.promote.events import OUTCOMES as DECIDED
from tasks.promote.events import rolled_back, standing
from tasks.quality import MEASURES
from tasks.running.curve import label
from tasks.running.run_status import RunStatus, run_statuses
from tasks.shared.policies import policies
from tasks.shared.status import success_of

OUTCOMES = ("success", "failure", "environment")
SHOWN_IDS = 60
"""Maximum trajectories on a policy's page."""
A_DAY = {"Cache-Control": "private, max-age=86400"}


def router(desk: Desk) -> APIRouter:
    """Makes the routes of the pages."""
    routes = APIRouter(default_response_class=HTMLResponse)
    lake, found = desk.lake, desk.gathered

    @routes.get("/")
    def wheel() -> HTMLResponse:
        shown = found.overview()
        return page("wheel", **vars(shown), label=label, charts=found.charts("wheel"), budget=found.budget())

    @routes.get("/curriculum")
    def curriculum() -> HTMLResponse:
        return page("curriculum", rows=found.curriculum().to_dicts(), charts=found.charts("curriculum"))

    @routes.get("/lineage")
    def lineage() -> HTMLResponse:
        rows = list(reversed(policies(lake).values()))
        fallen = rolled_back(lake)
        return page("lineage", rows=rows, fallen=fallen, standing=standing, charts=found.charts("lineage"))

    @routes.get("/policies/{name}")
    def policy(name: str) -> HTMLResponse:
        if (row := policies(lake).get(name)) is None:
            raise HTTPException(404, f"There is no policy {name!r} in this lake.")
        shown = lineage_of_policy(lake, row)
        config = json.dumps(shown.config, indent=2, sort_keys=True)
        ids, success = shown.trajectories[:SHOWN_IDS], success_of(lake, name)
        return page(
            "policy", shown=shown, row=row, ids=ids, config=config, standing=standing, success=success,
            decided=DECIDED, charts=found.charts(f"policies/{name}"),
        )  # fmt: skip

    routes.include_router(_data_router(desk))

    @routes.get("/running")
    def running() -> HTMLResponse:
        return page("running")

    return routes


def _data_router(desk: Desk) -> APIRouter:
    """Makes the routes of the pages of data and of its quality."""
    routes = APIRouter(default_response_class=HTMLResponse)
    lake, size = desk.lake, desk.config.desk.page_size

    @routes.get("/trajectories")
    def trajectories(
        number: Number = 0,
        task: str = "",
        iteration: Chosen = None,
        policy: str = "",
        outcome: Annotated[str, Query(pattern="^(success|failure|environment|)$")] = "",
    ) -> HTMLResponse:
        rows, total = _listed(desk, {"task_id": task, "policy_version": policy}, iteration, outcome, number, size)
        tasks = sorted(lake.read("tasks", ["task_id"])["task_id"].to_pylist())
        return page(
            "trajectories", rows=rows, total=total, page=number, size=size, tasks=tasks, task=task, policy=policy,
            outcome=outcome, outcomes=OUTCOMES, iteration="" if iteration is None else iteration,
        )  # fmt: skip

    @routes.get("/quality")
    def quality(iteration: Chosen = None, before: Chosen = None) -> HTMLResponse:
        try:
            shown = quality_of(lake, iteration, before)
        except UsageError as error:
            raise HTTPException(404, str(error)) from None
        return page("quality", quality=shown, measures=tuple(MEASURES), viewer="/trajectory/")

    return routes


def live_router(desk: Desk) -> APIRouter:
    """Makes the routes for requests of open pages."""
    routes = APIRouter()
    lake, found = desk.lake, desk.gathered

    @routes.get("/api/now")
    def now() -> JSONResponse:
        """Returns the current status of each run of this lake, the first one also as `now`, and a text that changes
        with the lake."""
        runs = [_as_json(one) for one in run_statuses(lake)]
        return JSONResponse({"now": runs[0] if runs else None, "runs": runs, "revision": found.revision()})

    @routes.get("/api/charts/{name:path}")
    def charts(name: str) -> JSONResponse:
        try:
            return JSONResponse(found.charts(name))
        except KeyError:
            raise HTTPException(404, f"No page {name!r} has charts.") from None

    @routes.get("/vega.js")
    def library() -> Response:
        return Response(vega(), media_type="text/javascript", headers=A_DAY)

    return routes


def _listed(
    desk: Desk, fields: dict[str, str], iteration: Iteration, outcome: str, number: int, size: int
) -> tuple[list[Trajectory], int]:
    """Returns one page of the requested trajectories, newest first, and their total number."""
    conditions = [pl.col(name) == value for name, value in fields.items() if value]
    if iteration is not None:
        conditions.append(pl.col("iteration") == iteration)
    if outcome:
        success = pl.col("success")
        conditions.append(success.is_null() if outcome == "environment" else success == (outcome == "success"))
    rows = desk.gathered.opened.trajectories()
    for condition in conditions:
        rows = rows.filter(condition)
    newest = rows.sort("started_at", "trajectory_id", descending=[True, False]).select("trajectory_id").collect()
    ids = newest["trajectory_id"].slice(number * size, size).to_list()
    found = desk.lake.rows(Trajectory, {"trajectory_id": ids}) if ids else []
    return sorted(found, key=lambda row: ids.index(row.trajectory_id)), newest.height


def _as_json(at: RunStatus) -> dict[str, Any]:
    where = "" if at.iteration is None else label(at.iteration)
    points = [(at.run_id, step, name, value) for step, measures in at.curve for name, value in measures.items()]
    chart = training(rows_of(points, POINTS))
    return at.model_dump(mode="json") | {"left_s": at.left_s, "where": where, "chart": chart}
