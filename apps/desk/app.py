"""Assemble the desk as a web application, and answer its errors."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from apps.dashboard import pages as dashboard
from apps.dashboard.gathered import Gathered
from apps.desk import aloud_routes, api, live_routes, pages
from apps.desk.desk import Desk
from apps.desk.live import LiveSessions
from apps.desk.pictures import DeskPictures
from apps.desk.queue import Queue
from apps.desk.reach import ADVICE, StoreConnection, StoreOutageGuard
from apps.desk.security import LOOPBACK, DeskGuard
from apps.desk.views import review_views
from schemas.config import Config
from schemas.failure import FlywheelError, StoreUnreachable, UsageError
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
    desk = Desk(config, lake, Queue(lake, config.curriculum.forgetting), pictures, live, Gathered(config, lake))

    @asynccontextmanager
    async def alive(_: FastAPI) -> AsyncIterator[None]:
        settle(patient)
        with suppress(StoreUnreachable):
            desk.queue.places(1)  # prepares the order before the first page
        try:
            yield
        finally:
            await live.close()

    app = FastAPI(title="flywheel desk", openapi_url=None, docs_url=None, redoc_url=None, lifespan=alive)
    app.include_router(api.router(desk))
    app.include_router(live_routes.router(desk))
    app.include_router(aloud_routes.router(desk))
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


async def _explained(request: Request, error: Exception) -> Response:
    """Answers with an error that the user can fix, and its hint."""
    assert isinstance(error, FlywheelError)
    if isinstance(error, Conflict):
        others = [one.model_dump() for one in review_views(error.others)]
        return JSONResponse({"error": str(error), "others": others, "revision": error.revision}, 409)
    return _answer(request, 422 if isinstance(error, UsageError) else 503, str(error))


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
        return _answer(request, 422, f"the body is no JSON, at byte {len(before.encode())}")
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path")) or "body"
    return _answer(request, 422, f"`{where}`: {in_words(first)}.")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _answer(request, error.status_code, str(error.detail))


def _answer(request: Request, status: int, problem: str) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": problem}, status)
    return pages.problem(status, problem)
