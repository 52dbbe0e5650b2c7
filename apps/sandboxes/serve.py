"""Implement `flywheel serve-sandboxes`: start the pool, then answer requests until a signal.

The server has the pages and the WebSocket of OpenEnv's interface (docs/sandboxes.md).
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import uvicorn
from fastapi import Body, FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect

from apps.desk.security import LOOPBACK
from apps.desk.serve import address_of, listening_at
from apps.process import Interrupts
from apps.sandboxes.guard import SandboxGuard, token_named
from apps.sandboxes.serving import Serving
from apps.sandboxes.session import CAPACITY, INVALID_JSON, SESSION, Message, WireSession
from common.text import counted
from environments.openenv.wire import refused, schemas, text_of
from environments.registry import require
from schemas.config import Config
from schemas.tables.task import GuiTask, Split
from tasks.running.console import out
from tasks.shared.version import version

MOST_BYTES = 1 << 20
"""Maximum bytes of one message: an action is short."""
PING_S, PONG_S = 20.0, 60.0
"""Seconds between pings of a quiet client, and time limit in seconds for a busy client's answer to a ping."""
TOKEN_VARIABLE = "FLYWHEEL_SANDBOXES_TOKEN"
"""Default environment variable of the token."""
NAME = "flywheel"
ABOUT = "Sandboxes of GUI tasks: observations are screenshots, actions are clicks and keys."
STATELESS = "An episode is a session: open the WebSocket /ws."
MOST_OPEN = 1024
"""Connections at a time: many may wait for a sandbox, but not without end."""
SERVED = "the sessions are over, and their sandboxes are given back; the same command serves them again"
"""The message at the end."""


def serve_sandboxes(
    config: Config,
    host: str,
    port: int,
    token_variable: str,
    names: Sequence[str] | None,
    held_out: bool,
    idle_s: float,
) -> None:
    """Serves sandboxes of the config's environments until a signal ends it.

    Args:
        config: the resolved config.
        host: the address to listen at.
        port: 0 selects any free port.
        token_variable: the environment variable with the token.
        names: the served tasks; the suite's, if not given.
        held_out: whether to serve held-out tasks and seeds, too.
        idle_s: seconds without a message after which a session ends.

    Raises:
        UsageError: a task is unknown, or other machines can connect and there is no token in the variable.
        FlywheelError: the port is taken, or a required browser is missing or does not start.
    """
    token = token_named(host, token_variable, TOKEN_VARIABLE)
    Interrupts.kept = SERVED
    serving = Serving(config, names, held_out)
    require(serving.environments)
    app = make_app(serving, idle_s, token, (*LOOPBACK, host.lower()))
    with listening_at(host, port, "--port") as listening:
        how = "" if token is None else f"  (the token is in {token_variable})"
        what = f"{counted(len(serving.tasks), 'task')}, {counted(serving.sandboxes, 'session')}"
        address = address_of(host, listening)

        async def answer() -> None:
            async with serving.pool:
                out().print(f"sandboxes {address}  {what}{how}", highlight=False, soft_wrap=True)
                await uvicorn.Server(running(app)).serve([listening])

        asyncio.run(answer())


def running(app: object) -> uvicorn.Config:
    """Returns the settings of the server. Frames are not compressed, since screenshots already are, and compression
    would cost ten times the rest of a step."""
    return uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType]
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=3,
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        ws_max_size=MOST_BYTES,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PONG_S,
    )


class TasksAsked(BaseModel):
    """The requested tasks."""

    split: Split = "train"
    index: int | None = None
    start: int | None = None
    stop: int | None = None


def make_app(serving: Serving, idle_s: float, token: str | None = None, hosts: Iterable[str] = LOOPBACK) -> ASGIApp:
    """Makes the server of some tasks.

    Args:
        serving: tasks and sandboxes; its pool has been started.
        idle_s: seconds without a message after which a session ends.
        token: required token; None requires none.
        hosts: the accepted host names if no token is required.
    """
    app = FastAPI(title=NAME, description=ABOUT, version=version(), docs_url=None, redoc_url=None)
    _add_pages(app)
    _add_tasks(app, serving)

    @app.websocket("/ws")
    async def session(socket: WebSocket) -> None:
        await socket.accept()
        if serving.sessions >= MOST_OPEN:
            reason = f"All {MOST_OPEN} connections are open."
            await _send(socket, refused(CAPACITY, reason, active_sessions=serving.sessions, max_sessions=MOST_OPEN))
            await socket.close()
            return
        serving.sessions += 1
        wire = WireSession(serving)
        try:
            await _converse(socket, wire, idle_s)
        except WebSocketDisconnect:
            pass
        finally:
            try:
                await asyncio.shield(wire.close())
            finally:
                serving.sessions -= 1
        with suppress(RuntimeError, WebSocketDisconnect):
            await socket.close()

    return SandboxGuard(app, token, hosts)


async def _converse(socket: WebSocket, wire: WireSession, idle_s: float) -> None:
    """Answers messages until the session is over.

    It reads the socket meanwhile: a client that disconnects ends its request, and a client that sends before its answer
    could take that for the answer to its next message, so the session ends.
    """
    incoming = asyncio.ensure_future(_next(socket))
    try:
        while True:
            done, _ = await asyncio.wait([incoming], timeout=idle_s)
            if not done:
                return await _send(
                    socket, refused(SESSION, f"Nothing was sent for {idle_s:g} s: the session is ended.")
                )
            text = incoming.result()
            incoming = asyncio.ensure_future(_next(socket))
            try:
                message = json.loads(text or "")
            except (ValueError, RecursionError):  # RecursionError: JSON that is nested deeper than Python can read
                await _send(socket, refused(INVALID_JSON, "The message is not JSON."))
                continue
            if isinstance(message, dict) and message.get("type") == "close":
                return None
            reply = await _answered(wire, message, incoming)
            if reply is None:
                return await _send(socket, refused(SESSION, "A message came before the last was answered."))
            await _send(socket, reply)
            if reply["data"].get("code") == CAPACITY:
                return None
    finally:
        incoming.cancel()
        with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
            await incoming


async def _answered(wire: WireSession, message: object, incoming: "asyncio.Future[str | None]") -> Message | None:
    """The answer, or None if another message came first; raises WebSocketDisconnect if the client disconnects."""
    answer = asyncio.ensure_future(wire.answer(message))
    try:
        await asyncio.wait([answer, incoming], return_when=asyncio.FIRST_COMPLETED)
        if incoming.done():
            incoming.result()
            return None
        return answer.result()
    finally:
        if not answer.done():
            answer.cancel()
            await asyncio.wait([answer])


async def _next(socket: WebSocket) -> str | None:
    """The text of the next message; None of one that has none. Raises WebSocketDisconnect."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    return message.get("text")


async def _send(socket: WebSocket, message: Mapping[str, Any]) -> None:
    with suppress(RuntimeError):  # the client has disconnected
        await socket.send_text(text_of(message))


def _add_pages(app: FastAPI) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "healthy"}

    @app.get("/metadata")
    async def metadata() -> dict[str, str]:
        return {"name": NAME, "description": ABOUT, "version": version()}

    @app.get("/schema")
    async def schema() -> dict[str, Any]:
        return schemas()

    async def stateless() -> JSONResponse:
        return JSONResponse({"detail": STATELESS}, 409)

    app.get("/state")(stateless)
    app.post("/reset")(stateless)
    app.post("/step")(stateless)

    @app.post("/mcp")
    async def mcp() -> dict[str, Any]:
        error = {"code": -32601, "message": f"No tools are called here. {STATELESS}"}
        return {"jsonrpc": "2.0", "id": None, "error": error}


def _add_tasks(app: FastAPI, serving: Serving) -> None:
    """OpenEnv's pages about tasks; one is chosen by `reset(task_id=)`, or by `reset(split=, index=)`."""

    @app.get("/list_environments")
    async def environments() -> list[str]:
        return [NAME]

    @app.get(f"/{NAME}/splits")
    async def splits() -> list[str]:
        return ["train", "held_out"] if serving.held_out else ["train"]

    @app.post(f"/{NAME}/num_tasks")
    async def count(asked: Annotated[TasksAsked, Body()]) -> dict[str, int]:
        return {"num_tasks": len(serving.of_split(asked.split))}

    @app.post(f"/{NAME}/tasks")
    async def tasks(asked: Annotated[TasksAsked, Body()]) -> dict[str, Any]:
        return {"tasks": [_described(task) for task in serving.of_split(asked.split)]}

    @app.post(f"/{NAME}/task_range")
    async def some(asked: Annotated[TasksAsked, Body()]) -> dict[str, Any]:
        return {"tasks": [_described(task) for task in serving.of_split(asked.split)[asked.start : asked.stop]]}

    @app.post(f"/{NAME}/task", response_model=None)
    async def one(asked: Annotated[TasksAsked, Body()]) -> dict[str, Any] | JSONResponse:
        found = serving.of_split(asked.split)
        if asked.index is None or not 0 <= asked.index < len(found):
            return JSONResponse({"detail": f"`index` is not below {len(found)}"}, 404)
        return {"task": _described(found[asked.index])}


def _described(task: GuiTask) -> dict[str, Any]:
    names = {"task_id", "environment", "instruction", "tags", "max_steps", "deterministic"}
    return task.model_dump(include=names)
