"""Maintain the files of tables: file settings, compaction, and removal of unused files."""

import json
import math
from collections import Counter
from functools import partial

import pyarrow as pa
from deltalake import ColumnProperties, DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError

from schemas.table import Table
from storage.protocol import features_named

SMALL_BYTES = 1_000_000
"""Size in bytes below which a file is small."""
MANY = 8
"""Maximum number of small files of a partition. A partition with more small files is compacted."""
TARGET_BYTES = 64_000_000
"""Maximum size in bytes of a compacted file."""
PICTURES = {"screenshots": "png", "evaluation_screenshots": "picture"}
"""Tables of pictures, each with its column of encoded pictures."""
UNCOMMITTED_HOURS = 1
"""Hours for which a file without a commit is kept. A writer commits a new file much sooner."""


def configuration(contract: Table) -> dict[str, str | None]:
    """Return the Delta settings of a table.

    The log is kept permanently, because pinned versions need it. Statistics are written only for keys and partitions.
    """
    columns = dict.fromkeys([*contract.key, *contract.partition_by])
    return {
        "delta.logRetentionDuration": "interval 5200 weeks",
        "delta.enableExpiredLogCleanup": "false",
        "delta.dataSkippingStatsColumns": ",".join(columns),
    }


def writer_properties(table: str) -> WriterProperties:
    """Return the Parquet settings of a table: zstd, except for pictures, which are already compressed."""
    if table in PICTURES:
        plain = {PICTURES[table]: ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")}
        return WriterProperties(compression="UNCOMPRESSED", column_properties=plain)
    return WriterProperties(compression="ZSTD", compression_level=3)


def compact(handle: DeltaTable, table: str) -> int:
    """Merge small files if there are many, and return the decrease in files.

    If another writer commits first, the next call merges the files.
    """
    if not _crowded(handle):
        return 0
    try:
        with features_named(handle.table_uri):
            done = handle.optimize.compact(target_size=TARGET_BYTES, writer_properties=writer_properties(table))
    except CommitFailedError:
        return 0
    return int(done["numFilesRemoved"]) - int(done["numFilesAdded"])


def vacuum(handle: DeltaTable, pins: set[int], retention_hours: float) -> None:
    """Remove files that neither a version of the last `retention_hours` nor a pinned version needs.

    Delta counts whole hours, so the hours are rounded up, except that a few seconds count as 0. Files without a commit
    are kept for at least an hour, because another process may be about to commit them.
    """
    hours, keep = math.ceil(round(retention_hours, 3)), sorted(pin for pin in pins if pin <= handle.version())
    remove = partial(handle.vacuum, dry_run=False, enforce_retention_duration=False, keep_versions=keep)
    if hours < UNCOMMITTED_HOURS:
        remove(hours, full=False)  # files of earlier versions only
    remove(max(hours, UNCOMMITTED_HOURS), full=True)


def pinned_versions(policies: pa.Table) -> dict[str, set[int]]:
    """Return the versions of each table that a policy was made from."""
    pins: dict[str, set[int]] = {}
    for text in policies["data_versions"].to_pylist():
        for table, version in json.loads(text or "{}").items():
            pins.setdefault(table, set()).add(int(version))
    return pins


def _crowded(handle: DeltaTable) -> bool:
    files = pa.table(handle.get_add_actions(flatten=True)).to_pylist()
    partitions = [tuple(value for name, value in file.items() if name.startswith("partition.")) for file in files]
    small = Counter(place for place, file in zip(partitions, files, strict=True) if file["size_bytes"] < SMALL_BYTES)
    return any(count > MANY for count in small.values())
