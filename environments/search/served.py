"""Serve a corpus to a browser: a search page, results and articles, for requests with the id of a current visit.

Articles keep their text, structure, tables and pictures; scripts, styles, forms and frames are removed. A link to
another site, or to a page that the visit excludes, is plain text.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit

import nh3
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Host, Route

from environments.chromium.browser import Browser
from environments.chromium.environment import BrowserHost
from environments.sandbox import Sandbox
from environments.search.corpus import Corpus, CorpusPage, marked
from environments.search.index import BEGIN, END, Index
from environments.webapp.host import DOMAIN, LoopbackServer

SITE = f"search.{DOMAIN}"
"""Name of the host, as pages and addresses write it."""
ORIGIN = f"http://{SITE}"
VISIT = "x-flywheel-visit"
"""Header with the id of a visit."""
_STYLE = Path(__file__).with_name("page.css").read_text()
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
}
_TAGS = nh3.ALLOWED_TAGS | {"main", "section", "tfoot"}
_DROPPED = {"script", "style", "title", "template", "noscript", "iframe", "object", "svg", "math", "select", "textarea"}
_ATTRIBUTES = {
    "*": {"id"}, "a": {"href", "name"}, "img": {"src", "alt", "width", "height"}, "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan"}, "ol": {"start"},
}  # fmt: skip
_DOCUMENT = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{style}</style></head>
<body><header class="top"><a class="home" href="/">Encyclopedia</a>
<form action="/search"><input name="q" value="{query}" aria-label="Search" maxlength="200" autocomplete="off" {focus}>
<button>Search</button></form></header>
<main class="page">{body}</main></body></html>"""


@dataclass(slots=True)
class Visit:
    """One trajectory's use of the pages."""

    excludes: frozenset[str] = frozenset()
    """Ids of pages that the visit can neither find nor open."""
    opened: list[str] = field(default_factory=list[str])
    """Ids of the opened pages, in order; a page that is opened again is listed again."""
    pictures: set[str] = field(default_factory=set[str])
    """Ids of the pictures on the opened pages; others are not served."""
    searches: list[str] = field(default_factory=list[str])
    """Texts of the searches, in order."""


class SearchServer(LoopbackServer):
    """Serves one corpus.

    Args:
        corpus: the corpus.
        index: its index, which is closed with the server.
        results: results on a page.
    """

    def __init__(self, corpus: Corpus, index: Index, results: int) -> None:
        self._corpus, self._index, self._results = corpus, index, results
        self._visits: dict[str, Visit] = {}
        routes = [
            Route("/", self._home),
            Route("/search", self._search),
            Route("/page/{key:path}", self._page),
            Route("/picture/{key:path}", self._picture),
        ]
        site = Starlette(routes=routes, exception_handlers={404: self._not_found})
        super().__init__(Starlette(routes=[Host(SITE, site)]), "search")

    def close(self) -> None:
        """Ends the server and its visits."""
        super().close()
        self._index.close()

    def begin(self, excludes: frozenset[str]) -> tuple[str, Visit]:
        """Begins a visit, and returns its id, which cannot be guessed."""
        name = secrets.token_urlsafe(24)
        self._visits[name] = Visit(excludes)
        return name, self._visits[name]

    def end(self, name: str) -> None:
        """Ends a visit; its pages are no longer served."""
        self._visits.pop(name, None)

    def _visit(self, request: Request) -> Visit | None:
        return self._visits.get(request.headers.get(VISIT, ""))

    async def _home(self, request: Request) -> Response:
        if self._visit(request) is None:
            return _refused()
        return _document(
            "Encyclopedia", f"<h1>Encyclopedia</h1><p>Search among {self._index.count} pages.</p>", focus=True
        )

    async def _search(self, request: Request) -> Response:
        if (visit := self._visit(request)) is None:
            return _refused()
        query, asked = request.query_params.get("q", ""), request.query_params.get("page", "1")
        number = int(asked) if asked.isascii() and asked.isdigit() and 0 < len(asked) < 6 and int(asked) else 1
        start = (number - 1) * self._results
        visit.searches.append(query)
        hits, more = self._index.search(query, start, self._results, visit.excludes)
        items = "".join(
            f'<li><a href="{_address(hit.key)}">{escape(hit.title)}</a><p>{marked(hit.snippet, BEGIN, END)}</p></li>'
            for hit in hits
        )
        turns = [("Previous page", number - 1)] * (number > 1) + [("Next page", number + 1)] * more
        links = " ".join(
            f'<a href="/search?{escape(urlencode({"q": query, "page": to}))}">{name}</a>' for name, to in turns
        )
        listed = f'<ol class="results" start="{start + 1}">{items}</ol><p class="turns">{links}</p>'
        body = f"<h1>Results</h1>{listed if hits else '<p>No page has these words.</p>'}"
        return _document(f"{query} - search", body, query, focus=not hits)

    async def _page(self, request: Request) -> Response:
        if (visit := self._visit(request)) is None:
            return _refused()
        key = self._corpus.target(request.path_params["key"])
        page = self._corpus.page(key) if key is not None and key not in visit.excludes else None
        if page is None:
            return self._missing()
        visit.opened.append(page.key)
        return _document(page.title, self._article(page, visit))

    async def _picture(self, request: Request) -> Response:
        if (visit := self._visit(request)) is None:
            return _refused()
        key = request.path_params["key"]
        found = self._corpus.picture(key) if key in visit.pictures else None
        return self._missing() if found is None else Response(found[0], media_type=found[1], headers=_HEADERS)

    async def _not_found(self, request: Request, error: Exception) -> Response:
        return _refused() if self._visit(request) is None else self._missing()

    def _missing(self) -> Response:
        return _document("No such page", "<h1>No such page</h1><p>The encyclopedia has no page here.</p>", status=404)

    def _article(self, page: CorpusPage, visit: Visit) -> str:
        """Cleans a page's document; addresses lead to the pages and pictures of this server, or are removed."""

        def address(tag: str, name: str, value: str) -> str | None:
            if name not in ("href", "src"):
                return value
            parts = urlsplit(urljoin(_address(page.key), value.strip()))
            if parts.scheme or parts.netloc or not parts.path.startswith("/page/"):
                return None
            key = unquote(parts.path.removeprefix("/page/"))
            if name == "src":
                visit.pictures.add(key)
                return f"/picture/{quote(key)}"
            target = self._corpus.target(key)
            mark = f"#{parts.fragment}" if parts.fragment else ""
            return None if target is None or target in visit.excludes else f"{_address(target)}{mark}"

        return nh3.clean(
            page.html, tags=_TAGS, clean_content_tags=_DROPPED, attributes=_ATTRIBUTES, attribute_filter=address,
            link_rel=None, url_schemes=set(),
        )  # fmt: skip


class SearchHost(BrowserHost):
    """A browser that reaches one corpus only, and the corpus's server, which runs as long as the host.

    Args:
        path: the browser.
        make: makes a sandbox in a running browser, given the server.
        serve: starts the server; raises FlywheelError if the corpus cannot be searched.
    """

    def __init__(
        self, path: Path, make: Callable[[Browser, SearchServer], Sandbox], serve: Callable[[], SearchServer]
    ) -> None:
        super().__init__(path, self._made)
        self._make_in, self._serve = make, serve
        self._server: SearchServer | None = None

    @property
    def reachable(self) -> Mapping[str, str]:
        """Returns the server at its port."""
        return {} if self._server is None else {f"{SITE}:80": self._server.address}

    async def revive(self) -> bool:
        """Starts the server, if it does not run, and a browser."""
        if self._server is None:
            self._server = await asyncio.to_thread(self._serve)
        return await super().revive()

    async def close(self) -> None:
        """Ends the browser and the server."""
        await super().close()
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _made(self, browser: Browser) -> Sandbox:
        assert self._server is not None
        return self._make_in(browser, self._server)


def _address(key: str) -> str:
    return f"/page/{quote(key)}"


def _document(title: str, body: str, query: str = "", focus: bool = False, status: int = 200) -> Response:
    text = _DOCUMENT.format(
        title=escape(title), style=_STYLE, query=escape(query), focus="autofocus" if focus else "", body=body
    )
    return HTMLResponse(text, status, _HEADERS)


def _refused() -> Response:
    return Response(status_code=403)
