"""Authenticate every request and every handshake for a sandbox, before a session is opened.

As at the desk (`apps.desk.security`): on the loopback interface every local program may connect; elsewhere a token is
required. Pages of other sites are refused, even in an accepted browser: they can open a WebSocket, but it carries their
`Origin`, or another `Host`.
"""

from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from apps.desk.security import LOOPBACK, name_of, place_of, same_text
from apps.desk.serve import token_for
from schemas.failure import UsageError

OPEN = "/health"
"""Path that is answered without a token, for clients that wait for the server."""


def token_named(host: str, variable: str, usual: str) -> str | None:
    """Reads the token from the environment; None if there is none, no variable is named, and only this machine can
    connect.

    Args:
        host: the listening address.
        variable: the environment variable.
        usual: the variable that is read if none is named.

    Raises:
        UsageError: as `token_for` does; or another variable than the usual one is named, and holds none.
    """
    token = token_for(host, variable, "--host")
    if token is None and variable != usual:
        hint = f"Set {variable} to a long random text, or leave the option out to ask for no token."
        raise UsageError(f"`--token-variable`: {variable} holds no token.", hint)
    return token


class SandboxGuard:
    """Answers refused requests itself.

    Args:
        app: the server.
        token: token that every request must carry as `Authorization: Bearer`; None requires none.
        hosts: the accepted host names if no token is required.
    """

    def __init__(self, app: ASGIApp, token: str | None, hosts: Iterable[str] = LOOPBACK) -> None:
        self._app, self._token, self._hosts = app, token, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes accepted requests on."""
        refusal = None if scope["type"] == "lifespan" else self._refusal(scope)
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._token is None and name_of(host) not in self._hosts:
            return PlainTextResponse(f"The server is not called {host[:60]!r}.\n", 421)
        if origin is not None and place_of(origin) != host:
            return PlainTextResponse("A page of another site asked for this.\n", 403)
        if self._token is None or scope["path"] == OPEN:
            return None
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and same_text(given, self._token):
            return None
        return PlainTextResponse("Send the server's token: Authorization: Bearer ...\n", 401)
