"""Great Expectations' Data Docs of an iteration: pages with expectations, results and offending rows."""

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from schemas.tables.quality import QualityResult
from schemas.tables.stage import label_of
from storage.lake import Lake
from storage.quality.pages import INDEX, index_page, kept_page

FOLDER = "data_docs"
"""Folder of the Data Docs below the blobs of a lake that is no local folder."""
KINDS = ("iteration", "import")


def docs_context(docs: Path | None, iteration: int) -> Any:
    """Return a Great Expectations context in memory that sends no analytics.

    Its Data Docs replace those in the iteration's folder; without a folder there are none.
    """
    import great_expectations as gx  # seconds to import, so not before a gate is run
    from great_expectations.data_context.types import base

    config = base.DataContextConfig(
        data_docs_sites={} if docs is None else {"quality": _site(docs / site_name(iteration))},
        analytics_enabled=False,
        progress_bars=base.ProgressBarsConfig(globally=False),
        store_backend_defaults=base.InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
    )
    return gx.get_context(project_config=config, mode="ephemeral")


def site_name(iteration: int) -> str:
    """Return the name of an iteration's folder of Data Docs."""
    kind, number = label_of(iteration).split()
    return f"{kind}-{int(number):04d}"


def _site(folder: Path) -> dict[str, Any]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.resolve())}
    index = {"class_name": "DefaultSiteIndexBuilder"}
    return {"class_name": "SiteBuilder", "store_backend": store, "site_index_builder": index}


def write_docs(context: Any, docs: Path, results: Sequence[QualityResult], keep: int) -> None:
    """Build the Data Docs of a context's validations, a page per table; the last `keep` of each kind stay."""
    context.build_data_docs()
    iteration = results[0].iteration if results else 0
    site = docs / site_name(iteration)
    built = {path.parents[2].name: path for path in sorted((site / "validations").rglob("*.html"))}
    pages = {f"{name}.html": kept_page(name, path.read_text(encoding="utf-8")) for name, path in built.items()}
    checks, failed = (
        Counter(row.table for row in rows) for rows in (results, [row for row in results if not row.success])
    )
    listed = [(name, checks[name], failed[name]) for name in checks if name in built]
    pages[INDEX] = index_page(f"Data quality of {label_of(iteration)}", listed)
    shutil.rmtree(site)
    site.mkdir()
    for name, text in pages.items():
        (site / name).write_text(text, encoding="utf-8")
    for old in superseded([path.name for path in docs.iterdir()], keep, site.name):
        shutil.rmtree(docs / old, ignore_errors=True)


def superseded(names: Iterable[str], keep: int, made: str) -> list[str]:
    """Return the superfluous folders of Data Docs, the oldest of each kind, but never the one just made."""
    there = [sorted(name for name in set(names) if name.startswith(f"{kind}-")) for kind in KINDS]
    return [name for of_kind in there for name in of_kind[: -max(keep, 1)] if name != made]


def publish_docs(lake: Lake, docs: Path, iteration: int, keep: int) -> str:
    """Copy an iteration's Data Docs next to a lake that is no local folder, and return the address of their first page.

    The last `keep` of each kind stay in such a lake, including those of other publishers.
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
