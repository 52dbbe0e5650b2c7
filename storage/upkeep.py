"""How tables are laid out on disk and kept small: file settings, compaction, removal of what no version needs."""

import json
from collections import Counter

import pyarrow as pa
from deltalake import ColumnProperties, DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError

from schemas.table import Table

SMALL_BYTES = 1_000_000
"""A file below this is small."""
MANY = 8
"""A partition with more small files than this is compacted."""
TARGET_BYTES = 64_000_000
"""Compaction does not make files larger than this."""


def configuration(contract: Table) -> dict[str, str | None]:
    """Delta settings: the log is kept for good (pins need it), statistics only for keys and partitions."""
    columns = dict.fromkeys([*contract.key, *contract.partition_by])
    return {
        "delta.logRetentionDuration": "interval 5200 weeks",
        "delta.enableExpiredLogCleanup": "false",
        "delta.dataSkippingStatsColumns": ",".join(columns),
    }


def writer_properties(table: str) -> WriterProperties:
    """Parquet settings: zstd, except for pictures, which are compressed already."""
    if table == "screenshots":
        plain = {"png": ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")}
        return WriterProperties(compression="UNCOMPRESSED", column_properties=plain)
    return WriterProperties(compression="ZSTD", compression_level=3)


def compact(handle: DeltaTable, table: str) -> int:
    """Merges small files where there are many and returns how many files fewer there are.

    Another writer coming first is no harm: the next call finds the same files.
    """
    if not _crowded(handle):
        return 0
    try:
        done = handle.optimize.compact(target_size=TARGET_BYTES, writer_properties=writer_properties(table))
    except CommitFailedError:
        return 0
    return int(done["numFilesRemoved"]) - int(done["numFilesAdded"])


def vacuum(handle: DeltaTable, pins: set[int], retention_hours: float) -> None:
    """Removes files that neither a version of the last `retention_hours` nor a pinned one needs."""
    hours, keep = int(retention_hours), sorted(pin for pin in pins if pin <= handle.version())
    handle.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True, keep_versions=keep)


def pinned_versions(policies: pa.Table) -> dict[str, set[int]]:
    """The versions of each table that some policy was made from."""
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
