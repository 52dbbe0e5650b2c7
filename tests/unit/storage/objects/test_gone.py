"""Files that another process removes between a look and a read: read where they moved, or named where they are lost."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from botocore.exceptions import ClientError
from deltalake import DeltaTable
from fsspec.implementations.memory import MemoryFileSystem
from s3fs.errors import translate_boto_error

from schemas.failure import LakeError, StoreUnreachable
from storage.blobs import Blobs
from storage.cache import FileCache
from storage.lake import Lake
from storage.objects import LocalStore, RemoteStore
from storage.schema_marker import NAME, make_marker
from storage.table import StoredTable
from tests.fixtures.sentences import Sentences

ROW = {
    "iteration": 1, "weight": 0.5, "explorer_trajectories": 0, "policy_trajectories": 0, "relay_trajectories": 0,
    "pool": "unseen", "successes": 0.0, "failures": 0.0, "reason": "x",
}  # fmt: skip
TABLE = "curriculum"


def moved(lake: Lake) -> None:
    """Writes the table's rows to files of other names and removes those of before, as a forgetting does."""
    table = DeltaTable(f"{lake.uri}/tables/{TABLE}")
    table.optimize.z_order(["task_id"])
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)


def before_each_read(monkeypatch: pytest.MonkeyPatch, times: int, then: Callable[[], None]) -> list[int]:
    """Does something so many times after a table's files are listed and before they are read."""
    done: list[int] = []
    snapshot = StoredTable.snapshot

    def late(self: StoredTable, *words: Any) -> Any:
        found = snapshot(self, *words)
        if len(done) < times:
            done.append(1)
            then()
        return found

    monkeypatch.setattr(StoredTable, "snapshot", late)
    return done


@pytest.mark.parametrize("times", [1, 2, 5])
def test_rows_whose_files_move_while_they_are_read_are_read_where_they_are(
    times: int, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append(TABLE, [{**ROW, "task_id": f"t{number}"} for number in range(3)])
    done = before_each_read(monkeypatch, times, lambda: moved(lake))
    assert lake.read(TABLE).num_rows == 3 and len(done) == times


@pytest.mark.parametrize("times", [1, 3])
def test_rows_whose_files_move_while_they_are_replaced_are_replaced_where_they_are(
    times: int, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append(TABLE, [{**ROW, "task_id": f"t{number}"} for number in range(3)])
    done = before_each_read(monkeypatch, times, lambda: moved(lake))
    lake.upsert(TABLE, [{**ROW, "task_id": "t1", "weight": 0.9}])
    assert sorted(lake.read(TABLE)["weight"].to_pylist()) == [0.5, 0.5, 0.9] and len(done) == times


def test_files_that_are_lost_are_named_at_once(lake: Lake, sentence: Sentences) -> None:
    lake.append(TABLE, [{**ROW, "task_id": "t"}])
    for file in Path(lake.uri, "tables", TABLE).rglob("*.parquet"):
        file.unlink()
    uses: list[Callable[[], object]] = [
        lambda: lake.read(TABLE), lambda: lake.upsert(TABLE, [{**ROW, "task_id": "t"}]), lambda: lake.read(TABLE)
    ]  # fmt: skip
    for use in uses:
        with sentence.raises(LakeError, "curriculum"):
            use()


class Cleared(MemoryFileSystem):
    """Its copies' folder is cleared by another process in the middle of a fetch."""

    cachable = False
    folder: Path
    times = 2

    def get(self, *words: Any, **more: Any) -> Any:
        super().get(*words, **more)
        if self.times:
            self.times -= 1
            shutil.rmtree(self.folder)


def test_copies_that_another_process_clears_in_the_middle_are_fetched_again(tmp_path: Path) -> None:
    files = Cleared()
    files.folder = tmp_path / "cache"
    files.pipe_file("/gone/steps/0.parquet", b"0" * 1000)
    held = FileCache(files.folder, "/gone", files, 2500, lambda: 0)
    assert held.hold({"steps/0.parquet": 1000}) and not files.times
    assert (files.folder / "steps/0.parquet").read_bytes() == b"0" * 1000
    with pytest.raises(FileNotFoundError):
        held.hold({"steps/1.parquet": 1000})


def test_a_folder_that_goes_while_it_is_listed_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    for name in ("a/1", "b/1", "c/d/1"):
        store.put(name, b"x")
    real = Path.is_file

    def late(self: Path) -> bool:
        shutil.rmtree(tmp_path / "c", ignore_errors=True)
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        return real(self)

    monkeypatch.setattr(Path, "is_file", late)
    assert set(store.sizes()) <= {"a/1", "b/1"} and "a/1" in store.sizes()


def test_a_directory_that_two_processes_fetch_at_once_is_there_once(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made/x").write_bytes(b"x")
    files = fsspec.filesystem("memory")
    blobs, other = (Blobs(RemoteStore(f"memory://{tmp_path.name}/{tmp_path}", files)) for _ in range(2))
    blobs.put_directory(tmp_path / "made", "p1")
    chunks, first = RemoteStore.chunks, [True]

    class Late(RemoteStore):
        def chunks(self, name: str, size: int) -> Any:
            if first.pop() if first else False:
                other.get_directory("p1", tmp_path / "cache")
            return chunks(self, name, size)

    late = Blobs(Late(f"memory://{tmp_path.name}/{tmp_path}", files))
    assert (late.get_directory("p1", tmp_path / "cache") / "x").read_bytes() == b"x"
    assert [path.name.startswith(".part") for path in (tmp_path / "cache").iterdir()] == [False]


def refusal(status: int, code: str, **more: str) -> OSError:
    response: Any = {"Error": {"Code": code, **more}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return translate_boto_error(ClientError(response, "PutObject"))


WORDED = {
    "AWS S3": refusal(
        412, "PreconditionFailed", Condition="If-None-Match",
        Message="At least one of the pre-conditions you specified did not hold",
    ),
    "MinIO": refusal(
        412, "PreconditionFailed", Message="At least one of the pre-conditions you specified did not hold"
    ),
    "Ceph, without a message": refusal(412, "PreconditionFailed"),
    "another wording": refusal(412, "PreconditionFailed", Message="Precondition failed"),
    "a status for a code": refusal(412, "412"),
    "MinIO before May 2024 (minio/minio#19442)": refusal(304, "NotModified"),
}  # fmt: skip


@pytest.mark.parametrize("server", WORDED)
def test_a_conditional_write_is_refused_however_the_server_words_it(server: str) -> None:
    files = MemoryFileSystem(skip_instance_cache=True)
    files.store = {}
    store = RemoteStore("memory://worded", files)
    store.put("x", b"theirs")

    def refuse(path: str, data: bytes, mode: str) -> None:
        raise WORDED[server]

    files.pipe_file = refuse  # type: ignore[method-assign]
    assert not store.put_once("x", b"ours")
    assert store.put_once("x", b"theirs"), "ours, where the answer to a try was lost"


def test_an_error_that_is_no_refusal_passes() -> None:
    files = MemoryFileSystem(skip_instance_cache=True)
    files.store = {}

    def fail(path: str, data: bytes, mode: str) -> None:
        raise OSError(errno.EIO, "no such luck")

    files.pipe_file = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no such luck"):
        RemoteStore("memory://failing", files).put_once("x", b"1")


def test_a_server_without_conditional_writes_is_named() -> None:
    files = MemoryFileSystem(skip_instance_cache=True)
    message = "A header you provided implies functionality that is not implemented."

    def fail(path: str, data: bytes, mode: str) -> None:
        raise refusal(501, "NotImplemented", Message=message)

    files.pipe_file = fail  # type: ignore[method-assign]
    with pytest.raises(LakeError, match=r"no conditional writes.*docs/run\.md"):
        RemoteStore("memory://without", files).put_once("x", b"1")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ConditionalRequestConflict", "The conditional request cannot succeed due to a conflicting operation."),
        ("OperationAborted", "A conflicting conditional operation is currently in progress against this resource."),
    ],
)
def test_a_conflict_with_another_request_is_worth_another_try(code: str, message: str, sentence: Sentences) -> None:
    class Conflicting(MemoryFileSystem):
        cachable = False
        store: dict[str, Any] = {}  # noqa: RUF012
        tries = 0

        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: Any) -> None:
            self.tries += 1
            if self.tries == 1:
                raise refusal(409, code, Message=message)
            super().pipe_file(path, value, mode, **more)

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return path.removeprefix("s3:/")

    files = Conflicting()
    store = RemoteStore("s3://bucket/lake", files)
    with sentence.raises(StoreUnreachable):
        store.put_once("x", b"1")
    assert store.put_once("x", b"1") and files.tries == 2


def test_a_server_that_ignores_conditional_writes_gets_no_lake(sentence: Sentences) -> None:
    class Ignoring(MemoryFileSystem):
        cachable = False
        store: dict[str, Any] = {}  # noqa: RUF012

        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: Any) -> None:
            super().pipe_file(path, value, "overwrite", **more)

    with sentence.raises(LakeError, "If-None-Match: *", hint="run.md"):
        make_marker(RemoteStore("memory://ignoring", Ignoring()), "s3://bucket/lake")
    honouring = MemoryFileSystem(skip_instance_cache=True)
    honouring.store = {}
    store = RemoteStore("memory://honouring", honouring)
    assert make_marker(store, "s3://bucket/lake").lake_id == make_marker(store, "s3://bucket/lake").lake_id
    assert list(store.sizes()) == [NAME]
