"""Refuse Delta tables with features that Arrow and DuckDB ignore, or that delta-rs cannot write.

Other engines can switch on such features. With deletion vectors, a file still has the deleted rows. With column
mapping, its columns have other names. With type widening, older files have other types. Arrow and DuckDB read the files
directly, so they would return wrong rows. delta-rs opens such tables and reports the feature only in some calls.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.table import SUPPORTED_READER_FEATURES

from schemas.failure import LakeError

_REFUSALS = re.compile(r"Unsupported table features required: \[(.+)\]|Feature '(.+?)' is not supported")
_VERSION = re.compile(
    r"Unsupported minimum ((?:reader|writer) version \d+)|Invalid protocol action[^:]*: (.+)"
    r"|(Table features must be specified)"
)
_NAMED = {"catalog-managed": "catalogManaged", "Column mapping": "columnMapping"}
"""Features by a text in delta-rs errors that lack the name of the feature."""
_MAPPING = "delta.columnMapping.mode"


def require_plain(handle: DeltaTable, uri: str) -> None:
    """Raise LakeError if a version's files must not be read directly. The message has the features."""
    protocol = handle.protocol()
    needed = set(protocol.reader_features or ())
    if handle.metadata().configuration.get(_MAPPING, "none") != "none":
        needed.add("columnMapping")
    if missing := sorted(needed - SUPPORTED_READER_FEATURES):
        raise _refused(uri, missing)


@contextmanager
def features_named(uri: str) -> Iterator[None]:
    """Convert delta-rs errors about a feature or a protocol version to a `LakeError`.

    Some of these errors look like the error of a commit that came too late.

    Source: delta-io/delta-rs crates/core/src/kernel/transaction/protocol.rs, deltalake 1.6.6.
    """
    try:
        yield
    except DeltaError as error:
        text = str(error)
        if found := _REFUSALS.search(text):
            raise _refused(uri, [found[1] or found[2]]) from error
        if features := [feature for words, feature in _NAMED.items() if words in text]:
            raise _refused(uri, features) from error
        if version := _VERSION.search(text):
            raise LakeError(
                f"Another engine gave {uri} a Delta protocol that flywheel cannot use: "
                f"{version[version.lastindex or 0]}.",
                "Write the table anew there with reader version 3 and writer version 7 or lower, or use a newer "
                "flywheel.",
            ) from error
        raise


def _refused(uri: str, features: Sequence[str]) -> LakeError:
    named = ", ".join(features)
    steps = "`ALTER TABLE ... DROP FEATURE NAME TRUNCATE HISTORY` for each"
    if "catalogManaged" in features:
        steps = f"{steps}, or copy the rows into a table that no catalog manages"
    if "deletionVectors" in features:
        off = "`ALTER TABLE ... SET TBLPROPERTIES ('delta.enableDeletionVectors' = false)`"
        steps = f"{off}, `REORG TABLE ... APPLY (PURGE)`, then {steps}"
    return LakeError(
        f"Another engine set table features of {uri} that flywheel cannot use: {named}.",
        f"Remove them there: {steps}.",
    )
