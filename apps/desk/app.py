"""The desk as a web application: its parts put together, and how errors are answered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

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
from apps.desk.pictures import Pictures
from apps.desk.queue import Queue
from apps.desk.security import LOOPBACK, Guard
from apps.desk.shown import reviews_shown
from schemas.config import Config
from schemas.failure import FlywheelError, UsageError
from schemas.problem import in_words
from storage.lake import Lake
from tasks.shared.reviews import Conflict, settle

FOLDER = Path(__file__).parent


def make_app(config: Config, lake: Lake, token: str | None = None, hosts: tuple[str, ...] = LOOPBACK) -> ASGIApp:
    """The desk of one lake.

    Args:
        config: the resolved config.
        lake: where trajectories are read and decisions are written.
        token: what every request must carry; None asks for none.
        hosts: the names that it may be asked by where there is no token.
    """
    pictures = Pictures(lake)
    live = LiveSessions(config, lake, pictures)
    desk = Desk(config, lake, Queue(lake, config.curriculum.forgetting), pictures, live, Gathered(config, lake))

    @asynccontextmanager
    async def alive(_: FastAPI) -> AsyncIterator[None]:
        settle(lake)
        desk.queue.places(1)  # so that nobody's first page waits for the order
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
    app.add_exception_handler(FlywheelError, _explained)
    app.add_exception_handler(RequestValidationError, _named)
    app.add_exception_handler(HTTPException, _refused)
    return Guard(app, token, hosts)


async def _explained(request: Request, error: Exception) -> Response:
    """What a person can put right, with what is to be done."""
    assert isinstance(error, FlywheelError)
    if isinstance(error, Conflict):
        others = [one.model_dump() for one in reviews_shown(error.others)]
        return JSONResponse({"error": str(error), "others": others, "revision": error.revision}, 409)
    return _answer(request, 422 if isinstance(error, UsageError) else 503, str(error))


async def _named(request: Request, error: Exception) -> Response:
    """A body or an address that is not what it should be, by the name of the field."""
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
