"""Serve live sessions over HTTP: the start, the page, long polls for changes, and decisions."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from apps.desk.desk import Desk
from apps.desk.live import ProposalDecision
from apps.desk.pages import action_fields, page
from common.text import Storable
from schemas.action import Action

Seen = Annotated[int, Query(ge=-1)]


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid")

    person: Storable


class Begun(_Sent):
    """The task and the proposer of a new session."""

    task_id: str
    seed: int | None = None
    policy: str


class Answered(_Sent):
    """A reviewer's decision on the page state with this number."""

    number: int
    decision: Literal["accept", "override"]
    action: Action | None = None
    thought: Storable = ""
    seconds: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0


def router(desk: Desk) -> APIRouter:
    """Makes the routes of live sessions."""
    routes, live = APIRouter(), desk.live

    @routes.get("/live", response_class=HTMLResponse)
    async def begin(task: str = "") -> HTMLResponse:
        tasks, proposers = await run_in_threadpool(lambda: (live.tasks(), live.proposers()))
        running = [one for one in live.sessions.values() if one.state != "ended"]
        return page("live", tasks=tasks, proposers=proposers, running=running, task=task)

    @routes.get("/live/{name}", response_class=HTMLResponse)
    async def session(name: str) -> HTMLResponse:
        return page("session", session=live.session(name), kinds=action_fields())

    @routes.post("/api/live", status_code=201)
    async def start(given: Begun) -> dict[str, str]:
        made = await live.start(given.person, given.task_id, given.seed, given.policy)
        return {"session": made.name, "trajectory_id": made.planned.trajectory_id}

    @routes.get("/api/live/{name}")
    async def state(name: str, seen: Seen = -1) -> dict[str, Any]:
        return await live.session(name).changed_since(seen)

    @routes.post("/api/live/{name}", status_code=202)
    async def decide(name: str, given: Answered) -> dict[str, bool]:
        decided = ProposalDecision(given.person, given.decision, given.action, given.thought, given.seconds)
        live.decide(name, given.number, decided)
        return {"taken": True}

    @routes.post("/api/live/{name}/end", status_code=202)
    async def end(name: str, given: _Sent) -> dict[str, bool]:
        live.end(name, f"ended by {given.person[:60]}")
        return {"taken": True}

    return routes
