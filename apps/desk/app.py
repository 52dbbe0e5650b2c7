"""Assemble the desk as a web application with live sessions and think-aloud, and answer its errors."""

import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import Query as QueryParameter
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from apps.dashboard import pages as dashboard
from apps.dashboard.gathered import Gathered
from apps.desk import api, many, pages
from apps.desk.desk import Desk
from apps.desk.live import LiveSessions, ProposalDecision
from apps.desk.pages import action_fields, page
from apps.desk.pictures import DeskPictures
from apps.desk.queue import Queue
from apps.desk.reach import ADVICE, StoreConnection, StoreOutageGuard
from apps.desk.retraining import Retraining
from apps.desk.security import LOOPBACK, DeskGuard
from apps.desk.speech import recognizer, sound_of
from apps.desk.views import DeskItem, item_of, review_views
from common.text import Storable
from curation.aloud import Phrase, align, read_notes
from schemas.action import Action
from schemas.config import Config
from schemas.failure import FlywheelError, StoreUnreachable, UnknownId, UsageError
from schemas.problem import in_words
from storage.lake import Lake
from tasks.shared.reviews import Conflict, settle

FOLDER = Path(__file__).parent


AGAIN_S = 5
"""Seconds after which a client without an answer retries."""
Handler = Callable[[Request, Exception], Coroutine[Any, Any, Response]]


def make_app(
    config: Config,
    lake: Lake,
    token: str | None = None,
    hosts: tuple[str, ...] = LOOPBACK,
    patient: Lake | None = None,
) -> ASGIApp:
    """Makes the desk of one lake.

    Args:
        config: the resolved config.
        lake: the lake that holds trajectories and decisions.
        token: token that every request must carry; None requires none.
        hosts: the accepted host names if there is no token.
        patient: the same lake with the store retries of a run, for background work, for which no user waits.
    """
    patient = patient or lake
    pictures = DeskPictures(lake)
    live = LiveSessions(config, lake, pictures, patient)
    queue, gathered = Queue(lake, config.curriculum.forgetting), Gathered(config, lake)
    desk = Desk(config, lake, queue, pictures, live, gathered, Retraining(config, patient))

    @asynccontextmanager
    async def alive(_: FastAPI) -> AsyncIterator[None]:
        settle(patient)
        with suppress(StoreUnreachable):
            desk.queue.places(1)  # prepares the order before the first page
        try:
            yield
        finally:
            await live.close()

    checked = [Depends(_known_parameters)]
    app = FastAPI(
        title="flywheel desk", openapi_url=None, docs_url=None, redoc_url=None, lifespan=alive, dependencies=checked
    )
    app.include_router(api.router(desk))
    app.include_router(many.router(desk))
    app.include_router(_session_router(desk))
    app.include_router(_aloud_router(desk))
    app.include_router(pages.router(desk))
    app.include_router(dashboard.router(desk))
    app.include_router(dashboard.live_router(desk))
    app.mount("/static/wheel", StaticFiles(directory=FOLDER.parent / "dashboard" / "static"))
    app.mount("/static", StaticFiles(directory=FOLDER / "static"))
    reach = StoreConnection.of(config.lake, lambda: settle(lake))
    app.add_exception_handler(FlywheelError, _explained)
    app.add_exception_handler(StoreUnreachable, _store_unreachable(reach))
    app.add_exception_handler(RequestValidationError, _named)
    app.add_exception_handler(HTTPException, _refused)
    return DeskGuard(StoreOutageGuard(app, reach, _unreached) if reach else app, token, hosts)


def _known_parameters(request: Request) -> None:
    """Refuses a query parameter that the route does not have, so that no misspelt filter shows everything."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    known = [one.alias for one in get_flat_params(route.dependant) if isinstance(one.field_info, QueryParameter)]
    if unknown := [name for name in request.query_params if name not in known]:
        has = f"it has {', '.join(f'`{name}`' for name in known)}" if known else "it has none"
        raise HTTPException(422, f"`{unknown[0][:40]}`: {request.url.path} has no such parameter; {has}.")


async def _explained(request: Request, error: Exception) -> Response:
    """Answers with an error that the user can fix, and its hint."""
    assert isinstance(error, FlywheelError)
    if isinstance(error, Conflict):
        others = [one.model_dump() for one in review_views(error.others)]
        return JSONResponse({"error": str(error), "others": others, "revision": error.revision}, 409)
    if isinstance(error, UnknownId) and request.method == "GET":
        return _answer(request, 404, str(error))
    status = 422 if isinstance(error, UsageError) else 503
    return _answer(request, status, str(error))


def _store_unreachable(reach: StoreConnection | None) -> Handler:
    """Answers while the store is unreachable, and starts polling for its return."""

    async def answered(request: Request, error: Exception) -> Response:
        assert isinstance(error, StoreUnreachable)
        if reach:
            reach.look(missed=True)
        return _unreached(request, error.problem)

    return answered


def _unreached(request: Request, problem: str) -> Response:
    """Answers with a page that retries by itself or, for programs, an error with the seconds to wait."""
    text, path = f"{problem} {ADVICE}", request.url.path
    answer = JSONResponse({"error": text}, 503) if path.startswith("/api/") else pages.problem(503, text, AGAIN_S)
    answer.headers["Retry-After"] = str(AGAIN_S)
    return answer


async def _named(request: Request, error: Exception) -> Response:
    """Answers an invalid body or address with the name of the field."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        before = str(error.body)[: first["loc"][-1]]
        return _answer(request, 422, f"the body is not JSON, at byte {len(before.encode())}")
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path")) or "body"
    return _answer(request, 422, f"`{where}`: {in_words(first)}.")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _answer(request, error.status_code, str(error.detail))


def _answer(request: Request, status: int, problem: str) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": problem}, status)
    return pages.problem(status, problem)


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


def _session_router(desk: Desk) -> APIRouter:
    """Makes the routes of live sessions: the start, the page, long polls for changes, and decisions."""
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


Offset = Annotated[float, Query(ge=-86_400.0, le=86_400.0)]
_ONE_AT_A_TIME = threading.Lock()


class Notes(BaseModel):
    """A reviewer's notes, with times."""

    model_config = ConfigDict(extra="forbid")

    notes: Annotated[str, Field(max_length=200_000)]
    offset_s: Annotated[float, Field(ge=-86_400.0, le=86_400.0)] = 0.0


class SpokenThought(BaseModel):
    """The speech at a step."""

    step: int
    thought: str


class Aligned(BaseModel):
    """Phrases, and their steps."""

    phrases: list[Phrase]
    steps: list[SpokenThought]


def _aloud_router(desk: Desk) -> APIRouter:
    """Makes the routes of think-aloud, which convert notes or sound to words by step. The reviewer edits these, and
    stores them as reviews."""
    routes = APIRouter()

    @routes.get("/aloud/{name}", response_class=HTMLResponse)
    def aloud(name: str) -> HTMLResponse:
        item = item_of(desk.lake, name)
        return page("aloud", item=item, speech=desk.config.desk.speech)

    @routes.post("/api/trajectories/{name}/aloud/notes")
    def notes(name: str, given: Notes) -> Aligned:
        return _aligned(item_of(desk.lake, name), read_notes(given.notes), given.offset_s)

    @routes.post("/api/trajectories/{name}/aloud/sound")
    async def sound(name: str, request: Request, offset_s: Offset = 0.0) -> Aligned:
        data = await request.body()
        return await run_in_threadpool(transcribe, name, data, offset_s)

    def transcribe(name: str, data: bytes, offset_s: float) -> Aligned:
        item, pcm = item_of(desk.lake, name), sound_of(data)
        with _ONE_AT_A_TIME:
            phrases = recognizer(desk.config.desk.speech).listen(pcm)
        return _aligned(item, phrases, offset_s)

    return routes


def _aligned(item: DeskItem, phrases: list[Phrase], offset_s: float) -> Aligned:
    words = align(phrases, [step.starts_s for step in item.steps], offset_s)
    thoughts = [SpokenThought(step=item.steps[place].step, thought=text) for place, text in words.items()]
    return Aligned(phrases=phrases, steps=thoughts)
