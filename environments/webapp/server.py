"""Serve built web applications, with a separate state for every session, by the contract of CUA-Gym-Hub.

One small server for all applications of a host runs in this process, on this machine's loopback alone. Each application
has its own host name, so that they are separate origins. A session's states live in memory while it is leased.

- `GET /state?sid=`: the page reads its state when it loads. `POST /post?sid=`: it writes its state when that changes.
- `POST /post?sid=` with `set` sets both states of a session, and `GET /go?sid=` returns their difference. Both need the
  server's key, so that no page can begin a session or read the states it is verified by.
"""

import json
import secrets
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Host, Mount, Route
from starlette.staticfiles import StaticFiles

from environments.webapp.host import DOMAIN
from schemas.world import State

KEY = "x-flywheel-key"
"""The header that the server's key is in."""
MOST_BYTES = 16 << 20
"""Maximum bytes of a state."""


@dataclass(slots=True)
class LeaseStates:
    """The states of one lease."""

    initial: State
    current: State


class Sessions:
    """The sessions of one application."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._held: dict[str, LeaseStates] = {}

    def routes(self, folder: Path) -> list[Route | Mount]:
        """The contract, and below it the files of a folder."""
        return [
            Route("/state", self._state),
            Route("/post", self._post, methods=["POST"]),
            Route("/go", self._go),
            Route("/end", self._end, methods=["POST"]),
            Mount("/", _Files(directory=folder, html=True)),
        ]

    async def _state(self, request: Request) -> Response:
        session = self._held.get(request.query_params.get("sid", ""))
        current = session.current if session else None
        return _json({"stored_state": current, "has_custom_state": current is not None})

    async def _post(self, request: Request) -> Response:
        """`set` begins a session, `set_current` continues one; a page's claim about its first state is ignored."""
        sid, known = request.query_params.get("sid", ""), self._held.get(request.query_params.get("sid", ""))
        try:
            answer = json.loads(await request.body())
            action, state = answer["action"], answer["state"]
        except (ValueError, KeyError, TypeError):
            return PlainTextResponse("an action and a state are wanted", 400)
        if not isinstance(state, dict):
            return PlainTextResponse("a state is an object", 400)
        if action == "set" and self._is_ours(request) and sid:
            self._held[sid] = LeaseStates(state, state)
        elif action in ("set", "set_current") and known is not None:
            known.current = state
        else:
            return PlainTextResponse("there is no such session", 404)
        return _json({"success": True})

    async def _go(self, request: Request) -> Response:
        session = self._held.get(request.query_params.get("sid", ""))
        if session is None or not self._is_ours(request):
            return PlainTextResponse("there is no such session", 404)
        changed = {
            name: {"modified" if session.initial.get(name) else "added": value}
            for name, value in session.current.items()
            if name not in session.initial or session.initial[name] != value
        }
        return _json({"initial_state": session.initial, "current_state": session.current, "state_diff": changed})

    async def _end(self, request: Request) -> Response:
        if self._is_ours(request):
            self._held.pop(request.query_params.get("sid", ""), None)
        return _json({"success": True})

    def _is_ours(self, request: Request) -> bool:
        return secrets.compare_digest(request.headers.get(KEY, ""), self._key)


class AppServer:
    """Serves in a thread of this process until it is closed; it ends with the process.

    Args:
        folders: of built applications, by name.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.key = secrets.token_urlsafe(24)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        hosts = [
            Host(f"{name}.{DOMAIN}", Starlette(routes=Sessions(self.key).routes(folder)))
            for name, folder in folders.items()
        ]
        config = uvicorn.Config(
            _Bounded(Starlette(routes=hosts)), log_config=None, access_log=False, server_header=False, lifespan="off",
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True, name="webapps")
        self._thread.start()

    def close(self) -> None:
        """Ends it and its sessions."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


class _Files(StaticFiles):
    """Files of a built application; an address without a file is one of the application's own pages."""

    async def get_response(self, path: str, scope: Any) -> Response:
        """The file, else the application's one document; a missing script or picture answers 404."""
        try:
            return await super().get_response(path, scope)
        except Exception as error:
            if getattr(error, "status_code", None) != 404 or "." in Path(path).name:
                raise
        return FileResponse(Path(str(self.directory)) / "index.html")


class _Bounded:
    """Refuses bodies whose declared length is too long; a body without a length is refused, too."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        length = headers.get(b"content-length", b"" if b"transfer-encoding" in headers else b"0")
        if scope["type"] != "http" or not length.isdigit() or int(length) > MOST_BYTES:
            if scope["type"] == "http":
                await PlainTextResponse("that is too long", 413)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _json(content: Mapping[str, Any]) -> Response:
    return JSONResponse(content, headers={"cache-control": "no-store"})
