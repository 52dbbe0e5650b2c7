"""Serve the dashboard's pages and their polling requests; the server escapes every text."""

import io
import json
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from apps.commands.comparison import TASKS_OF, label_of_pair
from apps.commands.lineage import lineage_of_policy
from apps.desk.desk import Desk
from apps.desk.pages import Chosen, page
from apps.desk.retraining import RetrainingStatus
from apps.quality.gather import quality_of
from apps.report.build import vega
from apps.report.charts import training
from common.text import Storable
from curation.converters.format import FORMATS
from flywheel.comparison import require_run
from flywheel.film import write_moving
from flywheel.frames import POINTS, rows_of
from schemas.failure import UsageError
from schemas.tables.promotion import Promotion
from schemas.tables.verdict import ROUTES
from storage.lake import Lake
from storage.quality.docs import read_page, site_name, site_names
from tasks.promote.events import OUTCOMES as DECIDED
from tasks.promote.events import rolled_back, standing
from tasks.promote.pairs import (
    SeedPair,
    evaluated_on,
    evaluated_task,
    evaluated_version,
    opponent_of,
    pairs_of,
    promotion_pairs,
    side_by_side,
)
from tasks.quality import MEASURES
from tasks.running.budget import pause as pause_lake
from tasks.running.budget import pause_of
from tasks.running.budget import resume as resume_lake
from tasks.running.curve import label
from tasks.running.run_status import RunStatus, run_statuses
from tasks.shared.finding import ORDERS, OUTCOMES, Wanted, find
from tasks.shared.general import general_checks
from tasks.shared.paths import docs_folder
from tasks.shared.policies import policies
from tasks.shared.reviews import require_name
from tasks.shared.runs import runs_of
from tasks.shared.status import success_of
from tasks.shared.tags import tags_of
from tasks.shared.trajectories import episode_of

SHOWN_IDS = 60
"""Maximum trajectories on a policy's page."""
Given = Annotated[str | None, BeforeValidator(lambda given: given or None)]
"""A field of a form; an empty one holds for every trajectory."""
Whole = Annotated[int, Query(ge=0, lt=2**63)]
Seed = Annotated[Annotated[int, Field(ge=0, lt=2**63)] | None, BeforeValidator(lambda given: given or None)]
"""A seed in a form's field; an empty one holds for every trajectory."""
Ticked = Annotated[bool, BeforeValidator(lambda given: given or False)]
"""A choice in a form; an empty one is false."""
DOCS_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
"""Policy of Data Docs, which have their style inside and nothing else."""
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
            decided=DECIDED, tags=tags_of(lake, [name]), pairs=_decisive(lake, shown.decision),
            general=general_checks(lake).get(name), charts=found.charts(f"policies/{name}"),
        )  # fmt: skip

    @routes.get("/runs")
    def runs(a: Given = None, b: Given = None) -> HTMLResponse:
        seen = {row.iteration: row for row in found.opened.iterations()}
        rows = [(run, [seen[at] for at in run.iterations if at in seen]) for run in reversed(runs_of(lake))]
        newest = [run.run_id for run, _ in rows[:2]][::-1]
        both = [require_run(lake, name).run_id for name in (a, b) if name]
        pair = found.runs_compared(*both) if len(both) == 2 else None
        return page(
            "runs", rows=rows, tags=tags_of(lake, [run.run_id for run, _ in rows]), pair=pair, chosen=both or newest,
            label=label, label_of_pair=label_of_pair, tasks_of=TASKS_OF,
            charts=found.charts("runs/" + "/".join(both)) if pair else {},
        )  # fmt: skip

    routes.include_router(_data_router(desk))

    @routes.get("/running")
    def running() -> HTMLResponse:
        return page("running")

    return routes


def _data_router(desk: Desk) -> APIRouter:
    """Makes the routes of the pages of data and of its quality."""
    routes = APIRouter(default_response_class=HTMLResponse)
    lake, found, size = desk.lake, desk.gathered, desk.config.desk.page_size

    @routes.get("/trajectories")
    def trajectories(
        task: Given = None,
        iteration: Chosen = None,
        policy: Given = None,
        outcome: Given = None,
        route: Given = None,
        gate: Given = None,
        text: Given = None,
        seed: Seed = None,
        tag: Given = None,
        evaluations: Ticked = False,
        sort: str = "newest",
        after: Given = None,
        before: Given = None,
    ) -> HTMLResponse:
        given = {"task": task, "outcome": outcome, "iteration": iteration, "policy": policy, "route": route}
        given |= {"gate": gate, "text": text, "seed": seed, "tag": tag, "evaluations": evaluations}
        try:
            shown = find(lake, Wanted(**given), size, sort, after, before)
        except UsageError as error:
            raise HTTPException(422, str(error)) from None
        tasks = sorted(lake.read("tasks", ["task_id"])["task_id"].to_pylist())
        filters = {name: value for name, value in given.items() if value is not None and name != "evaluations"}
        given = {name: "" if value is None else value for name, value in given.items()}
        given["evaluations"] = "true" if evaluations else ""
        more = urlencode({name: value for name, value in (given | {"sort": sort}).items() if value != ""})
        return page(
            "trajectories", found=shown, tasks=tasks, given=given, sort=sort, more=more,
            outcomes=OUTCOMES, routes=ROUTES, orders=ORDERS, gates=found.gates(), filters=json.dumps(filters),
            champion=found.champion(), formats=sorted(FORMATS.names),
        )  # fmt: skip

    @routes.get("/compare")
    def compare(task: str, seed: Whole, a: str, b: Given = None) -> HTMLResponse:
        first = evaluated_version(lake, a)
        others = evaluated_on(lake, evaluated_task(lake, first, task), seed)
        pair = side_by_side(lake, first, b or opponent_of(lake, first, others), task, seed)
        won = pairs_of(lake, pair.a.policy, pair.b.policy, pair.task_id)
        return page("compare", pair=pair, others=others, seeds=[one for one in won if one.won])

    @routes.get("/film/{name}.gif")
    def film(name: str) -> Response:
        named = episode_of(lake, name).trajectory_id
        held = io.BytesIO()
        write_moving(found.opened.trajectory(named).film(), held, "gif")
        return Response(held.getvalue(), media_type="image/gif")

    @routes.get("/quality")
    def quality(iteration: Chosen = None, before: Chosen = None) -> HTMLResponse:
        try:
            shown = quality_of(lake, iteration, before)
        except UsageError as error:
            raise HTTPException(404, str(error)) from None
        docs = set(site_names(lake, docs_folder(desk.config, lake)))
        return page(
            "quality", quality=shown, measures=tuple(MEASURES), viewer="/trajectory/", docs=docs, site_name=site_name
        )

    @routes.get("/data-docs/{site}/{name}")
    def data_docs(site: str, name: str) -> HTMLResponse:
        if (kept := read_page(lake, docs_folder(desk.config, lake), site, name)) is None:
            raise HTTPException(404, f"There is no page {name} of the Data Docs {site}.")
        return HTMLResponse(kept, headers={"Content-Security-Policy": DOCS_POLICY})

    return routes


class ByPerson(BaseModel):
    """The person who presses a button."""

    model_config = ConfigDict(extra="forbid")

    person: Storable


class RetrainAsked(ByPerson):
    """A retraining."""

    like: Storable | None = None
    """The policy whose training is repeated; null to train from the current data."""


def _decisive(lake: Lake, decision: Promotion | None) -> list[SeedPair]:
    """Returns the pairs of a decision that one of the policies won."""
    return [] if decision is None else [one for one in promotion_pairs(lake, decision) if one.won]


def live_router(desk: Desk) -> APIRouter:
    """Makes the routes for requests of open pages."""
    routes = APIRouter()
    lake, found = desk.lake, desk.gathered

    @routes.get("/api/now")
    def now() -> JSONResponse:
        """Returns the current status of each run of this lake, the first one also as `now`, the lake's pause as text or
        null, and a text that changes with the lake."""
        runs, pause = [_as_json(one) for one in run_statuses(lake)], pause_of(lake)
        first = {"now": runs[0] if runs else None, "runs": runs, "paused": pause and pause.text}
        return JSONResponse({**first, "revision": found.revision()})

    @routes.post("/api/pause", status_code=201)
    def pause(given: ByPerson) -> dict[str, str]:
        require_name(given.person)
        return {"paused": pause_lake(lake, "stopped on the dashboard", given.person).text}

    @routes.post("/api/resume", status_code=201)
    def resume(given: ByPerson) -> dict[str, bool]:
        require_name(given.person)
        return {"was_paused": resume_lake(lake)}

    @routes.post("/api/retrain", status_code=201)
    def retrain(given: RetrainAsked) -> RetrainingStatus:
        require_name(given.person)
        return desk.retraining.start(given.like)

    @routes.get("/api/retrain")
    def retraining() -> RetrainingStatus:
        return desk.retraining.status()

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


def _as_json(at: RunStatus) -> dict[str, Any]:
    where = "" if at.iteration is None else label(at.iteration)
    points = [(at.run_id, step, name, value) for step, measures in at.curve for name, value in measures.items()]
    chart = training(rows_of(points, POINTS))
    return at.model_dump(mode="json") | {"left_s": at.left_s, "where": where, "chart": chart}
