"""Sanitize Great Expectations' pages for storage: no outside address, no script, only text in tables.

Its templates link style sheets, scripts and pictures of a dozen hosts: a page is bare without a network, and these
hosts learn of its readers. The templates also insert the rows' content unescaped. This module rewrites a page from
allowed elements, and adds a policy under which a browser loads nothing and runs nothing.
"""

from collections.abc import Iterable
from html import escape
from html.parser import HTMLParser

from typing_extensions import override

_ALLOWED = frozenset(
    (
        *("a", "b", "blockquote", "br", "code", "dd", "div", "dl", "dt", "em", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("hr", "i", "li", "ol", "p", "pre", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
    )
)
_EMPTY = frozenset(("br", "hr"))
_UNSEEN = frozenset(("script", "style", "nav", "head", "noscript", "template", "svg", "label", "iframe", "object"))
"""Elements that are left out with their content."""
_CLASSES = {"fa-check-circle": "✓", "fa-times": "✗", "fa-exclamation-triangle": "!", "fa-exclamation-circle": "!"}
"""Replacements for the icons of a font that is not there."""
_FOOT = "Stay current on everything GX"
"""Start of the advertisement in their pages."""
_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222;
  background: #fff; overflow-wrap: anywhere }}
table {{ border-collapse: collapse; margin: .5rem 0 }}
th, td {{ border-bottom: 1px solid #ddd; padding: .3rem .7rem .3rem 0; text-align: left; vertical-align: top }}
h5 {{ font-size: 1.1rem; margin: 1.5rem 0 .3rem }} h6 {{ font-size: 1rem; margin: .8rem 0 .2rem }}
code, pre {{ white-space: pre-wrap }} .bad {{ color: #b3261e }} .good {{ color: #2e7d4f }}
@media (prefers-color-scheme: dark) {{ body {{ color: #ddd; background: #181818 }} td, th {{ border-color: #444 }}
  a {{ color: #8ab4f8 }} .bad {{ color: #f28b82 }} .good {{ color: #81c995 }} }}
</style></head><body>
"""
INDEX = "index.html"


def page(title: str, body: str) -> str:
    """Wrap a body in this module's page."""
    return _HEAD.format(title=escape(title)) + body + "\n</body></html>\n"


def kept_page(title: str, theirs: str) -> str:
    """Rewrite a page of Great Expectations with only allowed elements."""
    reader = _PageRewriter()
    reader.feed(theirs.split(_FOOT)[0])
    reader.close()
    return page(title, f'<p><a href="{INDEX}">All tables</a></p>\n' + "".join(reader.written))


def index_page(title: str, tables: Iterable[tuple[str, int, int]]) -> str:
    """Return the first page, failed tables first; a table is (name, expectations, number that failed)."""
    listed = sorted(tables, key=lambda row: (-row[2], row[0]))
    lines = [
        f'<tr><td><a href="{escape(name)}.html">{escape(name)}</a></td><td>{count}</td>'
        f'<td class="{"bad" if failed else "good"}">{failed}</td></tr>'
        for name, count, failed in listed
    ]
    head = "<tr><th>table</th><th>expectations</th><th>failed</th></tr>"
    return page(title, f"<h1>{escape(title)}</h1>\n<table>{head}\n" + "\n".join(lines) + "\n</table>")


class _PageRewriter(HTMLParser):
    """Rewrites the markup that it parses."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.written: list[str] = []
        self._unseen: list[str] = []
        self._open: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._unseen or tag in _UNSEEN:
            if tag in _UNSEEN:
                self._unseen.append(tag)
            return
        if tag not in _ALLOWED:
            return
        known = {name: value or "" for name, value in attrs}
        kept = f' id="{escape(known["id"])}"' if known.get("id") else ""
        href = known.get("href", "")
        kept += f' href="{escape(href)}"' if tag == "a" and href.startswith("#") else ""
        self.written.append(f"<{tag}{kept}>")
        icon = next((sign for name, sign in _CLASSES.items() if name in known.get("class", "").split()), "")
        self.written.append(icon)
        if tag not in _EMPTY:
            self._open.append(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        if self._unseen:
            if tag == self._unseen[-1]:
                self._unseen.pop()
            return
        if tag in self._open:
            while True:
                last = self._open.pop()
                self.written.append(f"</{last}>")
                if last == tag:
                    return

    @override
    def handle_data(self, data: str) -> None:
        if not self._unseen and (data.strip() or not self.written or not self.written[-1].isspace()):
            self.written.append(escape(data) if data.strip() else "\n")

    @override
    def close(self) -> None:
        super().close()
        self.written += [f"</{tag}>" for tag in reversed(self._open)]
