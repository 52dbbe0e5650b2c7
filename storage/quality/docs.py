"""Write Data Docs of an iteration: pages of Great Expectations with expectations, results and offending rows.

The templates of Great Expectations link style sheets, scripts and pictures of a dozen hosts. Without a network such a
page has no style, and with a network these hosts learn about its readers. The templates also insert content of rows
without escaping it. This module therefore keeps only harmless elements of a page, and adds a policy that forbids a
browser to load or run anything.
"""

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

import nh3

from schemas.tables.quality import QualityResult
from schemas.tables.stage import label_of
from storage.lake import Lake

FOLDER = "data_docs"
"""Folder of the Data Docs among the blobs of a lake that is not a local folder."""
KINDS = ("iteration", "import")
INDEX = "index.html"
_ELEMENTS = {
    *("a", "b", "blockquote", "br", "code", "dd", "div", "dl", "dt", "em", "h1", "h2", "h3", "h4", "h5", "h6"),
    *("hr", "i", "li", "ol", "p", "pre", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_DROPPED = {"script", "style", "nav", "title", "noscript", "template", "svg", "label", "iframe", "object"}
"""Elements that are removed with their content."""
_ICONS = {"check-circle": "✓", "times": "✗", "exclamation-triangle": "!", "exclamation-circle": "!"}
"""Replacements for icons of a font that pages do not load."""
_FOOT = "Stay current on everything GX"
"""Start of the advertisement in pages of Great Expectations."""
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


def site_name(iteration: int) -> str:
    """Return the name of an iteration's folder of Data Docs."""
    kind, number = label_of(iteration).split()
    return f"{kind}-{int(number):04d}"


def write_docs(pages: Mapping[str, str], docs: Path, results: Sequence[QualityResult], keep: int) -> None:
    """Write the Data Docs of an iteration, with one page per table, and remove old Data Docs.

    Args:
        pages: pages of Great Expectations, by table.
        docs: parent folder of the Data Docs.
        results: results of the gate.
        keep: number of iterations, and of imports, whose Data Docs are kept.
    """
    iteration = results[0].iteration if results else 0
    site = docs / site_name(iteration)
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    checks, failed = (
        Counter(row.table for row in rows) for rows in (results, [row for row in results if not row.success])
    )
    listed = [(name, checks[name], failed[name]) for name in checks if name in pages]
    texts = {name: kept_page(name, text) for name, text in pages.items()}
    texts["index"] = index_page(f"Data quality of {label_of(iteration)}", listed)
    for name, text in texts.items():
        (site / f"{name}.html").write_text(text, encoding="utf-8")
    for old in superseded([path.name for path in docs.iterdir()], keep, site.name):
        shutil.rmtree(docs / old, ignore_errors=True)


def superseded(names: Iterable[str], keep: int, made: str) -> list[str]:
    """Return the folders of Data Docs to remove: the oldest iterations and imports, but never the folder just made."""
    there = [sorted(name for name in set(names) if name.startswith(f"{kind}-")) for kind in KINDS]
    return [name for of_kind in there for name in of_kind[: -max(keep, 1)] if name != made]


def publish_docs(lake: Lake, docs: Path, iteration: int, keep: int) -> str:
    """Copy the Data Docs of an iteration into a lake that is not a local folder, and return their address.

    Such a lake keeps the Data Docs of the last `keep` iterations and imports, also if other machines wrote them.
    """
    name, store = site_name(iteration), lake.blobs.store
    if store.local_path(FOLDER) is not None:
        return str(docs / name / INDEX)
    there = store.sizes(FOLDER)
    for page in sorted((docs / name).iterdir(), key=lambda page: page.name == INDEX):
        store.put(f"{FOLDER}/{name}/{page.name}", page.read_bytes())
    folders = {path.split("/")[1] for path in there} | {name}
    for old in superseded(folders, keep, name):
        for path in there:
            if path.startswith(f"{FOLDER}/{old}/"):
                store.delete(path)
    return store.path(f"{FOLDER}/{name}/{INDEX}")


def page(title: str, body: str) -> str:
    """Return an HTML page with a title and a body."""
    return _HEAD.format(title=escape(title)) + body + "\n</body></html>\n"


def kept_page(title: str, theirs: str) -> str:
    """Rewrite a page of Great Expectations. Only allowed elements and links within the page are kept."""
    text = theirs.split(_FOOT)[0]
    for name, sign in _ICONS.items():
        text = re.sub(rf"<i [^>]*fa-{name}\b[^>]*>", rf"\g<0>{sign}", text)
    kept = nh3.clean(
        text,
        tags=_ELEMENTS,
        clean_content_tags=_DROPPED,
        attributes={"*": {"id"}, "a": {"href"}},
        attribute_filter=lambda _, name, value: value if name == "id" or value.startswith("#") else None,
        link_rel=None,
    )
    return page(title, f'<p><a href="{INDEX}">All tables</a></p>\n' + re.sub(r"\s*\n\s*", "\n", kept))


def index_page(title: str, tables: Iterable[tuple[str, int, int]]) -> str:
    """Return the index page, with failed tables first.

    Args:
        title: title of the page.
        tables: name, number of expectations, and number of failed expectations of each table.
    """
    listed = sorted(tables, key=lambda row: (-row[2], row[0]))
    lines = [
        f'<tr><td><a href="{escape(name)}.html">{escape(name)}</a></td><td>{count}</td>'
        f'<td class="{"bad" if failed else "good"}">{failed}</td></tr>'
        for name, count, failed in listed
    ]
    head = "<tr><th>table</th><th>expectations</th><th>failed</th></tr>"
    return page(title, f"<h1>{escape(title)}</h1>\n<table>{head}\n" + "\n".join(lines) + "\n</table>")
