"""Tables whose features another engine changed: no wrong row, no wait for a lock that nobody holds, a named fix.

The inline deletion vector is the one of delta-io/delta PROTOCOL.md ("Deletion Vector Example 2", rows 3, 4, 7, 11, 18
and 29 of a file), which deltalake 1.6.6 reads as such.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder

from schemas.config.sections import LakeConfig
from schemas.failure import LakeError
from storage import upkeep
from storage.lake import Lake
from tests.fixtures.sentences import Sentences

TABLE = "curriculum"
VECTOR = {
    "storageType": "i", "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 40,
    "cardinality": 6,
}  # fmt: skip
MAPPING = "delta.columnMapping"
ROW = {
    "iteration": 1, "weight": 0.5, "explorer_trajectories": 0, "policy_trajectories": 0, "relay_trajectories": 0,
    "pool": "unseen", "successes": 0.0, "failures": 0.0, "reason": "x",
}  # fmt: skip


@pytest.fixture
def full(lake: Lake) -> Lake:
    lake.append(TABLE, [{**ROW, "task_id": f"t{number:02d}"} for number in range(40)])
    return lake


def with_protocol(lake: Lake, **protocol: Any) -> None:
    """Commits a protocol alone."""
    log = Path(lake.uri, "tables", TABLE, "_delta_log")
    last = DeltaTable(str(log.parent)).version()
    (log / f"{last + 1:020d}.json").write_text(json.dumps({"protocol": protocol}) + "\n")


def by_another_engine(
    lake: Lake,
    readers: Sequence[str] | None,
    writers: Sequence[str],
    vector: bool = False,
    settings: dict[str, str] | None = None,
) -> None:
    """Commits what Spark would: a protocol of these features, and deleted rows as a deletion vector."""
    log = Path(lake.uri, "tables", TABLE, "_delta_log")
    last = DeltaTable(str(log.parent)).version()
    made = [json.loads(line) for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()]
    protocol: dict[str, Any] = {"minReaderVersion": 2, "minWriterVersion": 5}
    if readers is not None:
        protocol = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7, "writerFeatures": list(writers)}
        protocol |= {"readerFeatures": list(readers)} if readers else {}
    actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": 1, "operation": "DELETE"}}, {"protocol": protocol}]
    if settings:
        metadata = next(one["metaData"] for one in made if "metaData" in one)
        schema = json.loads(metadata["schemaString"])
        for number, one in enumerate(schema["fields"]):
            one["metadata"] |= {f"{MAPPING}.id": number, f"{MAPPING}.physicalName": one["name"]}
        metadata |= {"schemaString": json.dumps(schema), "configuration": {**metadata["configuration"], **settings}}
        actions.append({"metaData": metadata})
    if vector:
        added = next(one["add"] for one in made if "add" in one)
        gone = {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}
        gone |= {"partitionValues": added["partitionValues"], "size": added["size"], "extendedFileMetadata": True}
        actions += [{"remove": gone}, {"add": {**added, "deletionVector": VECTOR}}]
    (log / f"{last + 1:020d}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))


USES: dict[str, Callable[[Lake], object]] = {
    "read": lambda lake: lake.read(TABLE),
    "count": lambda lake: lake.count(TABLE),
    "batches": lambda lake: list(lake.batches(TABLE, ["task_id"])),
    "SQL": lambda lake: lake.connect([TABLE]).sql(f"SELECT count(*) FROM {TABLE}").fetchall(),
    "SQL of a version": lambda lake: lake.connect([TABLE], {TABLE: 2}),
    "a version": lambda lake: lake.read(TABLE, version=2),
    "append": lambda lake: lake.append(TABLE, [{**ROW, "task_id": "new"}]),
    "upsert": lambda lake: lake.upsert(TABLE, [{**ROW, "task_id": "t03"}]),
    "delete": lambda lake: lake.delete(TABLE, "task_id = 't03'"),
    "compact": lambda lake: lake.compact(TABLE),
    "maintain": lambda lake: lake.maintain(),
}


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("use", USES)
def test_rows_that_a_deletion_vector_removed_are_never_returned_and_the_fix_is_named(
    use: str, again: bool, full: Lake
) -> None:
    by_another_engine(full, ["deletionVectors"], ["deletionVectors"], vector=True)
    table = DeltaTable(f"{full.uri}/tables/{TABLE}")
    left = QueryBuilder().register("t", table).execute("SELECT task_id FROM t").read_all()
    assert left.num_rows == 34, "the six rows of the vector are gone for a reader that knows it"
    lake = full if again else Lake.open(LakeConfig(uri=full.uri), create=False)
    with pytest.raises(LakeError, match=r"deletionVectors") as raised:
        USES[use](lake)
    assert TABLE in raised.value.problem
    for words in ("delta.enableDeletionVectors", "REORG TABLE", "APPLY (PURGE)", "DROP FEATURE", "TRUNCATE HISTORY"):
        assert words in (raised.value.hint or "")


def test_versions_before_the_feature_are_read_as_ever(full: Lake) -> None:
    pinned = full.versions()
    by_another_engine(full, ["deletionVectors"], ["deletionVectors"], vector=True)
    lake = Lake.open(LakeConfig(uri=full.uri), create=False)
    assert lake.read(TABLE, version=pinned[TABLE]).num_rows == 40
    assert lake.connect([TABLE], pinned).sql(f"SELECT count(*) FROM {TABLE}").fetchall() == [(40,)]


@pytest.mark.parametrize(
    "feature", ["columnMapping", "typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck", "newer"]
)
def test_a_feature_that_a_reader_of_plain_files_does_not_know_is_named(feature: str, full: Lake) -> None:
    by_another_engine(full, [feature], [feature])
    for lake in (full, Lake.open(LakeConfig(uri=full.uri), create=False)):
        for use in ("read", "SQL", "append", "a version"):
            with pytest.raises(LakeError, match=rf"features.*{feature}.*DROP FEATURE"):
                USES[use](lake)


def test_column_mapping_of_before_there_were_features_is_named(full: Lake) -> None:
    by_another_engine(full, None, [], settings={f"{MAPPING}.mode": "name"})
    with pytest.raises(LakeError, match="columnMapping"):
        full.read(TABLE)


def test_features_that_leave_the_files_as_they_are_do_no_harm(full: Lake) -> None:
    by_another_engine(full, ["timestampNtz"], ["timestampNtz", "appendOnly", "invariants", "changeDataFeed"])
    assert full.append(TABLE, [{**ROW, "task_id": "new"}]) == 1
    assert full.count(TABLE) == 41


@pytest.mark.parametrize("feature", ["rowTracking", "domainMetadata", "inCommitTimestamp", "identityColumns", "newer"])
def test_a_feature_that_keeps_us_from_writing_is_no_busy_table(
    feature: str, full: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-rs raises the error of a lost race for it, which is tried 200 times."""
    by_another_engine(full, [], [feature])
    monkeypatch.setattr(upkeep, "MANY", 0)
    monkeypatch.setattr("storage.table.time.sleep", lambda _: pytest.fail("it waited for another writer"))
    assert full.count(TABLE) == 40
    for use in ("append", "upsert", "delete", "compact"):
        with pytest.raises(LakeError, match=r"features.*DROP FEATURE") as raised:
            USES[use](full)
        assert feature.lower() in raised.value.problem.lower()


@pytest.mark.parametrize("again", [True, False])
def test_a_table_that_a_catalog_manages_is_refused_by_that_feature(
    again: bool, full: Lake, sentence: Sentences
) -> None:
    """delta-rs 1.6.6 asks for a version of the catalog and names no feature."""
    by_another_engine(full, ["catalogManaged"], ["catalogManaged"])
    lake = full if again else Lake.open(LakeConfig(uri=full.uri), create=False)
    for use in ("read", "SQL", "append"):
        with sentence.raises(LakeError, hint="ALTER TABLE ... DROP FEATURE NAME TRUNCATE HISTORY"):
            USES[use](lake)


@pytest.mark.parametrize(
    ("protocol", "named"),
    [
        ({"minReaderVersion": 4, "minWriterVersion": 8}, "reader version 4"),
        ({"minReaderVersion": 1, "minWriterVersion": 8}, "Table features must be specified"),
        (
            {"minReaderVersion": 4, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []},
            "minimum reader version != 3",
        ),
    ],
)
def test_a_protocol_of_a_newer_version_is_refused_by_it(
    protocol: dict[str, Any], named: str, full: Lake, sentence: Sentences
) -> None:
    with_protocol(full, **protocol)
    for lake in (full, Lake.open(LakeConfig(uri=full.uri), create=False)):
        with sentence.raises(LakeError, named):
            USES["append"](lake)
