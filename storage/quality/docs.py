"""Write Data Docs of an iteration: pages of Great Expectations with expectations, results and offending rows.

The templates of Great Expectations link style sheets, scripts and pictures of a dozen hosts. Without a network such a
page has no style, and with a network these hosts learn about its readers. The templates also insert content of rows
without escaping it. This module therefore keeps only harmless elements of a page, and adds a policy that forbids a
browser to load or run anything.
"""

import re
import shutil
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

import nh3

from schemas.tables.quality import QualityResult
from schemas.tables.stage import label_of
from storage.lake import Lake

FOLDER = "data_docs"
"""Folder of the Data Docs among the blobs of a lake that is not a local folder."""
KINDS = ("iteration", "import")
Listed = tuple[str, int, int]
"""A table: its name, its number of expectations, and of failed ones."""
INDEX = "index.html"
_SITE = re.compile(r"(iteration|import)-\d{4,}")
_PAGE = re.compile(r"[a-z_]+\.html")
_ELEMENTS = {
    *("a", "b", "blockquote", "br", "code", "dd", "div", "dl", "dt", "em", "h1", "h2", "h3", "h4", "h5", "h6"),
    *("hr", "i", "li", "ol", "p", "pre", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_DROPPED = {"script", "style", "nav", "title", "noscript", "template", "svg", "label", "iframe", "object"}
"""Elements that are removed with their content."""
_ICONS = {
    "check-circle": ("✓", "good"), "times": ("✗", "bad"), "exclamation-triangle": ("!", "bad"),
    "exclamation-circle": ("!", "bad"),
}  # fmt: skip
"""Replacements for icons of a font that pages do not load, each with its class."""
_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: light-dark(#23262b, #e4e3e0); --soft: light-dark(#6b7078, #9a9da3);
  --line: light-dark(#e3e0da, #35383d); --paper: light-dark(#fbfaf8, #17191c); --card: light-dark(#fff, #1f2226);
  --good: light-dark(#1f7a4a, #63c08c); --bad: light-dark(#b3402e, #ef8d7a); --link: light-dark(#2b63b8, #7fb0f0) }}
* {{ box-sizing: border-box }}
body {{ margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere }}
header, main {{ max-width: 70rem; margin: 0 auto; padding: 1rem }}
header a {{ margin-right: .9rem; white-space: nowrap }} header b {{ margin-right: .9rem }}
a {{ color: var(--link) }} .bad, a.bad {{ color: var(--bad) }} .good {{ color: var(--good) }}
h1 {{ font-size: 1.4rem; margin: 0 0 1rem }} h5 {{ font-size: 1.05rem; margin: 0 0 .3rem }}
h6 {{ font-size: .9rem; color: var(--soft); font-weight: 500; margin: .6rem 0 .2rem }}
.card {{ background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem;
  margin: 0 0 .8rem }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px }}
th, td {{ border-bottom: 1px solid var(--line); padding: .3rem .7rem .3rem 0; text-align: left; vertical-align: top }}
th {{ color: var(--soft); font-weight: 500; overflow-wrap: normal }} td:last-child {{ min-width: 6rem }}
td.n, th.n {{ text-align: right }}
td:first-child {{ min-width: 3.2rem; overflow-wrap: normal }} th:empty {{ padding: 0; border: 0 }}
code, pre {{ white-space: pre-wrap; font-size: 12px }} i {{ font-style: normal; font-weight: 600 }}
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
    every = sorted(((name, checks[name], failed[name]) for name in checks), key=_failed_first)
    listed = [row for row in every if row[0] in pages]
    title = f"Data quality of {label_of(iteration)}"
    texts = {name: kept_page(name, title, text, listed) for name, text in pages.items()}
    texts["index"] = index_page(title, every, pages)
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


def site_names(lake: Lake, docs: Path) -> list[str]:
    """Return the names of the iterations' Data Docs that this machine or the lake has.

    Args:
        lake: the lake.
        docs: parent folder of this machine's Data Docs.
    """
    if lake.blobs.store.local_path(FOLDER) is not None:
        return sorted(path.parent.name for path in docs.glob(f"*/{INDEX}"))
    return sorted(path.split("/")[1] for path in lake.blobs.store.sizes(FOLDER) if path.endswith(f"/{INDEX}"))


def read_page(lake: Lake, docs: Path, site: str, page: str) -> bytes | None:
    """Return a page of Data Docs, such as `index.html` of the site `iteration-0003`; None if there is none.

    The other arguments are those of `site_names`.
    """
    if not (_SITE.fullmatch(site) and _PAGE.fullmatch(page)):
        return None
    store = lake.blobs.store
    try:
        if store.local_path(FOLDER) is not None:
            return (docs / site / page).read_bytes()
        return store.get(f"{FOLDER}/{site}/{page}")
    except FileNotFoundError:
        return None


def kept_page(title: str, of: str, theirs: str, tables: Sequence[Listed]) -> str:
    """Rewrite a page of Great Expectations. Only allowed elements and links within the page are kept.

    Args:
        title: name of the table.
        of: title of the index page.
        theirs: the page of Great Expectations.
        tables: the tables of the index page, for links to their pages.
    """
    for name, (sign, kind) in _ICONS.items():
        theirs = re.sub(rf"<i [^>]*fa-{name}\b[^>]*>", f'<i class="{kind}">{sign}', theirs)
    kept = nh3.clean(
        theirs,
        tags=_ELEMENTS,
        clean_content_tags=_DROPPED,
        attributes={"*": {"id"}, "a": {"href"}, "i": {"class"}},
        attribute_filter=_harmless,
        link_rel=None,
    )
    kept = re.sub(r"<a>(.*?)</a>", r"\1", kept)  # it linked to the page of a suite, which there is not
    sections = re.sub(r'<div id="(section-\d+)">', r'<div id="\1" class="card">', re.sub(r"\s*\n\s*", "\n", kept))
    links = [
        f"<b>{escape(name)}</b>" if name == title else f'<a href="{escape(name)}.html"{_bad(failed)}>{escape(name)}</a>'
        for name, _, failed in tables
    ]
    head = f'<header><a href="{INDEX}">{escape(of)}</a> ' + "\n".join(links) + "</header>"
    return _page(title, f"{head}\n<main><h1>{escape(title)}</h1>{sections}</main>")


def index_page(title: str, tables: Sequence[Listed], pages: Container[str]) -> str:
    """Return the index page with a title and all checked tables; it links those with a page, and sums their checks."""
    total = ("<b>all tables</b>", sum(row[1] for row in tables), sum(row[2] for row in tables))
    named = [(f'<a href="{escape(row[0])}.html">{escape(row[0])}</a>', *row[1:]) for row in tables if row[0] in pages]
    others = [(escape(row[0]), *row[1:]) for row in tables if row[0] not in pages]
    lines = [
        f'<tr><td>{name}</td><td class="n">{count}</td>'
        f'<td class="n"><span class="{"bad" if failed else "good"}">{failed}</span></td></tr>'
        for name, count, failed in (*named, *others, total)
    ]
    head = '<tr><th>table</th><th class="n">checks</th><th class="n">failed</th></tr>'
    listed = f'<div class="card"><table>{head}\n' + "\n".join(lines) + "\n</table></div>"
    note = "<p>A table without a link has no row of this iteration, or its check broke.</p>" if others else ""
    return _page(title, f"<main><h1>{escape(title)}</h1>\n{listed}{note}</main>")


def _failed_first(row: Listed) -> tuple[int, str]:
    return -row[2], row[0]


def _bad(failed: int) -> str:
    return ' class="bad"' if failed else ""


def _harmless(element: str, name: str, value: str) -> str | None:
    """Return the value of an attribute to keep; None to remove the attribute."""
    if name == "class":
        return value if value in ("good", "bad") else None
    return value if name == "id" or value.startswith("#") else None


def _page(title: str, body: str) -> str:
    return _HEAD.format(title=escape(title)) + body + "\n</body></html>\n"
