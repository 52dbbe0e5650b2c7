"""Serve the desk's pages, rendered on the server, with every text escaped.

The funnel counts the trajectories of each iteration that reach training, and the reasons of the others.
"""

import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel, BeforeValidator, ConfigDict

from apps.desk.api import Iteration
from apps.desk.desk import Desk
from apps.desk.openings import Asking
from apps.desk.views import DeskItem, item_of
from common.text import legible
from schemas.action import TYPES, in_words
from schemas.tables.stage import label_of
from storage.catalog import answers, ask
from storage.lake import Lake
from tasks.running.budget import short
from tasks.shared.policies import policies
from tasks.shared.proposals import proposals_of

STAGES = ("collected", "valid", "judged", "reviewed", "selected", "trained")


class Drop(BaseModel):
    """A kind of reason for which trajectories do not reach training."""

    model_config = ConfigDict(frozen=True)

    iteration: int
    stage: str
    gate: str
    why: str
    """The kind of reason: without quoted texts, ids and numbers."""
    reason: str
    """The whole reason of the first example."""
    n: int
    examples: list[str]
    """Ids of up to three trajectories."""


class Funnel(BaseModel):
    """Counts of one iteration."""

    model_config = ConfigDict(frozen=True)

    iteration: int
    counts: dict[str, int]
    """Counts by stage; `reviewed` is not a stage, because only some trajectories are reviewed."""
    trained_by: str
    """The newest trained policy: `trained` counts the trajectories that were selected from its data."""
    drops: list[Drop]


def funnel_of(lake: Lake) -> list[Funnel]:
    """Computes every iteration's funnel, newest first."""
    newest, trained = _trained(lake)
    drops: dict[int, list[Drop]] = {}
    for drop in answers(lake, Drop, "funnel_drops"):
        drops.setdefault(drop.iteration, []).append(drop)

    def funnel(iteration: int, **counts: int) -> Funnel:
        counts["trained"] = trained[iteration]
        return Funnel(iteration=iteration, counts=counts, trained_by=newest, drops=drops.get(iteration, []))

    return answers(lake, funnel, "funnel_people")


def _trained(lake: Lake) -> tuple[str, Counter[int]]:
    """Finds the newest policy that was trained from data, and the number of trajectories that it read from each
    iteration."""
    made = [row for row in policies(lake).values() if row.pins]
    if not made:
        return "", Counter()
    read = ask(lake, "decisions", made[-1].pins, iteration=None).to_pylist()
    return made[-1].policy_version, Counter(row["iteration"] for row in read if row["route"] == "sft")


Page = Annotated[int, Query(ge=0, le=10_000)]
Position = Annotated[int, InPath(le=10_000)]
Neighbour = Annotated[int, Query(ge=-1, le=1)]
Number = Annotated[int, Query(alias="page", ge=0, le=10_000)]
Chosen = Annotated[Iteration, BeforeValidator(lambda given: given or None)]
"""Iteration in the queue's form; an empty field means any."""


def router(desk: Desk) -> APIRouter:
    """Makes the routes of the pages."""
    routes = APIRouter(default_response_class=HTMLResponse)
    size = desk.config.desk.page_size

    @routes.get("/queue")
    def queue(asking: Asking, number: Number = 0, task: str | None = None, iteration: Chosen = None) -> Response:
        places = desk.queue.places(size + 1, number * size, task or None, iteration, asking)
        if number and not places:  # reviewed meanwhile, or a page behind the last one
            first = {"task": task or "", "iteration": "" if iteration is None else iteration}
            return RedirectResponse(f"/queue?{urlencode(first)}", 303)
        tasks = sorted(desk.lake.read("tasks", ["task_id"])["task_id"].to_pylist())
        return page(
            "queue", places=places[:size], more=len(places) > size, page=number, size=size, tasks=tasks,
            task=task or "", iteration="" if iteration is None else iteration,
        )  # fmt: skip

    @routes.get("/queue/{position}")
    def place(position: Position, asking: Asking, of: str = "", by: Neighbour = 0) -> RedirectResponse:
        """Redirects to the item at a place of the queue, or to the item before or after item `of`, which was opened at
        this place."""
        position = desk.queue.neighbour(of, by, position, asking) if of else position
        sent = desk.queue.send(max(0, position), by, asking)
        if sent is None:
            return RedirectResponse("/queue", 303)
        at, found = sent
        return RedirectResponse(f"/review/{found.trajectory_id}?at={at}&step={found.step}", 303)

    @routes.get("/review/{name}")
    def review(name: str, asking: Asking, at: Page = 0, step: Page = 0) -> HTMLResponse:
        item = item_of(desk.lake, name)
        other = desk.queue.openings.with_others(asking).get(item.trajectory_id, "")
        desk.queue.openings.open(asking, item.trajectory_id)
        return _trajectory(item, "review", at, step, other)

    @routes.get("/trajectory/{name}")
    def trajectory(name: str, step: Page = 0) -> HTMLResponse:
        return _trajectory(item_of(desk.lake, name, evaluations=True), "look", 0, step)

    @routes.get("/funnel")
    def funnel() -> HTMLResponse:
        return page("funnel", rows=funnel_of(desk.lake), proposals=proposals_of(desk.lake))

    return routes


def problem(status: int, text: str, again_s: int = 0) -> HTMLResponse:
    """Makes a page that describes an error, and retries by itself after `again_s` seconds, if given."""
    return page("problem", status=status, text=text, again_s=again_s, status_code=status)


def _trajectory(item: DeskItem, mode: str, at: int, step: int, open_with: str = "") -> HTMLResponse:
    first = min(step, max(0, len(item.steps) - 1))
    values = item.steps[first] if item.steps else None
    return page(
        "trajectory", item=item, mode=mode, at=at, first=first, shown=values, data=item.model_dump_json(),
        kinds=action_fields(), open_with=open_with,
    )  # fmt: skip


@cache
def action_fields() -> dict[str, dict[str, bool]]:
    """Returns the fields of every type of action, for the editor's form, each with whether it is required."""
    return {
        name: {field: about.is_required() for field, about in kind.model_fields.items() if field != "type"}
        for name, kind in TYPES.items()
    }


def all_in_words(actions: Sequence[str]) -> str:
    """Describes the actions of a reply for people, in order."""
    return "; ".join(map(in_words, actions)) or in_words(None)


def page(name: str, status_code: int = 200, **shown: Any) -> HTMLResponse:
    """Renders a template with values."""
    return HTMLResponse(templates().get_template(f"{name}.html.jinja").render(**shown), status_code)


@cache
def templates() -> Environment:
    """Loads the templates, which escape each value."""
    apps = Path(__file__).parents[1]
    folders = [*(apps / part / "templates" for part in ("desk", "dashboard", "quality")), apps / "report"]
    environment = Environment(loader=FileSystemLoader(folders), autoescape=True, undefined=StrictUndefined)
    environment.filters["action"] = in_words
    environment.filters["actions"] = all_in_words
    environment.filters["legible"] = legible
    environment.filters["mark"] = mark
    environment.filters["short"] = short
    environment.filters["label"] = label_of
    return environment


def mark(action: str | None) -> tuple[float, float] | None:
    """Returns the target of an action, in fractions of the screen; None for an action without a point."""
    fields = json.loads(action) if action else {}
    return (fields["x"], fields["y"]) if "x" in fields and "y" in fields else None
