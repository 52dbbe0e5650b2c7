"""Great Expectations' Data Docs of an iteration: pages of what was expected, what was found and which rows that was."""

import shutil
from pathlib import Path
from typing import Any

from schemas.tables.stage import label_of

KINDS = ("iteration", "import")


def docs_context(docs: Path | None, iteration: int) -> Any:
    """A Great Expectations context in memory, whose Data Docs go to the iteration's folder and which tells nobody
    anything; what was there is removed. Without Data Docs if there is no folder."""
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
    """The folder of an iteration's Data Docs."""
    kind, number = label_of(iteration).split()
    return f"{kind}-{int(number):04d}"


def _site(folder: Path) -> dict[str, Any]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.resolve())}
    index = {"class_name": "DefaultSiteIndexBuilder"}
    return {"class_name": "SiteBuilder", "store_backend": store, "site_index_builder": index}


def write_docs(context: Any, docs: Path, keep: int) -> None:
    """Builds the Data Docs of what a context has validated, and removes all but the last `keep` of each kind."""
    context.build_data_docs()
    for kind in KINDS:
        for old in sorted(docs.glob(f"{kind}-*"))[: -max(keep, 1)]:
            shutil.rmtree(old, ignore_errors=True)
