"""Authenticate requests to the desk, before any page, picture or decision is served.

On the loopback interface every local program may connect; elsewhere a token is required. Pages of other sites are
refused, even in an accepted browser: their requests carry another `Host` (a name that points here) or another `Origin`.
"""

import hmac
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "flywheel_desk"
MOST_BYTES = {"application/json": 1 << 20, "audio/wav": 64 << 20}
"""Maximum bytes of a request's body, by its type; other types are refused."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class DeskGuard:
    """Answers refused requests itself.

    Args:
        app: the desk.
        token: token that every request must carry, in a cookie or as `Authorization: Bearer`; None requires none.
        hosts: the accepted host names if no token is required.
    """

    def __init__(self, app: ASGIApp, token: str | None, hosts: Iterable[str] = LOOPBACK) -> None:
        self._app, self._token, self._hosts = app, token, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes accepted requests on; every answer carries the same headers, unless it has stricter ones."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = name_of(host)
        if name is None:
            return _refused(421, f"`host`: {host[:60]!r} is not a host name.")
        if self._token is None and name not in self._hosts:
            return _refused(
                421, f"The desk does not accept the host name {name!r}. Open the address that the desk printed."
            )
        changes = scope["method"] not in ("GET", "HEAD")
        if _foreign(headers, host, changes):
            return _refused(403, "A page of another site asked for this.")
        if changes and (why := _unfit(headers)):
            return why
        return None if self._token is None else self._unknown(scope, headers, self._token)

    def _unknown(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        """Answers a request without the token, or with the token in its address."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        carried = [given if kind.lower() == "bearer" else "", cookie_parser(headers.get("cookie", "")).get(COOKIE, "")]
        if any([same_text(one, token) for one in carried]):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"))
        if scope["method"] == "GET" and any([same_text(value, token) for key, value in query if key == "token"]):
            left = urlencode([(key, value) for key, value in query if key != "token"])
            path = "/" + scope["path"].lstrip("/")  # browsers read two slashes as the name of another site
            answer = RedirectResponse(path + (f"?{left}" if left else ""), 303)
            answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
            return answer
        return _refused(401, "The desk asks for its token: open its address with ?token=... once.")


def _foreign(headers: Headers, host: str, changes: bool) -> bool:
    """Returns whether a page of another site sent the request, to change data or to load a screenshot."""
    site = headers.get("sec-fetch-site", "none")
    if changes:
        origin = headers.get("origin")
        return site not in ("none", "same-origin") or (origin is not None and place_of(origin) != host)
    return site not in ("none", "same-origin") and headers.get("sec-fetch-mode") != "navigate"


def name_of(host: str) -> str | None:
    """Returns the name in a `Host`, in lower case; None if it is invalid, such as half of an IPv6 address."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return None


def place_of(origin: str) -> str | None:
    """Returns the name and port in an `Origin`; None if it is invalid."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _unfit(headers: Headers) -> Response | None:
    kind = headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in MOST_BYTES:
        return _refused(415, f"`content-type`: {kind[:60]!r} is not one of {', '.join(MOST_BYTES)}.")
    length = headers.get("content-length", "")
    if not length.isdecimal():
        return _refused(411, "`content-length` is missing.")
    if int(length) > MOST_BYTES[kind]:
        return _refused(
            413, f"The body has {int(length):,} bytes, and at most {MOST_BYTES[kind]:,} of {kind} are read."
        )
    return None


def same_text(given: str, token: str) -> bool:
    """Compares in a time that does not depend on the number of equal characters."""
    return hmac.compare_digest(given.encode(), token.encode())


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(why + "\n", status)
