"""A stored directory is whole or it is not there."""

import json
import threading
from pathlib import Path

import pytest

from schemas.config.sections import LakeConfig
from schemas.failure import CheckpointError
from storage.blobs import MANIFEST, FsspecBlobStore


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FsspecBlobStore:
    uri = str(tmp_path / "store") if request.param == "folder" else f"memory://{tmp_path.name}"
    return FsspecBlobStore.open(LakeConfig(uri=uri))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    (folder / "tokenizer").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 100)
    (folder / "tokenizer" / "vocab.json").write_text("{}")
    return folder


def test_bytes_come_back_as_they_were_put(store: FsspecBlobStore) -> None:
    store.put("a/b", b"one")
    store.put("a/b", b"two")
    assert store.get("a/b") == b"two"
    assert store.exists("a/b") and not store.exists("a/c")


def test_a_missing_blob_is_a_file_not_found_error(store: FsspecBlobStore) -> None:
    with pytest.raises(FileNotFoundError):
        store.get("nothing")


def test_names_are_listed_below_a_folder_and_deleted_with_it(store: FsspecBlobStore) -> None:
    for name in ("a/1", "a/2", "b/3"):
        store.put(name, b"")
    assert store.list() == ["a/1", "a/2", "b/3"]
    assert store.list("a") == ["a/1", "a/2"]
    store.delete("a")
    store.delete("a")
    assert store.list() == ["b/3"]


def test_of_several_writers_exactly_one_creates_a_blob(tmp_path: Path) -> None:
    store, won = FsspecBlobStore.open(LakeConfig(uri=str(tmp_path))), []
    writers = [threading.Thread(target=lambda i=i: won.append(store.create("x", b"%d" % i))) for i in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(won) == [False] * 7 + [True]
    assert store.list() == ["x"]


def test_a_directory_comes_back_file_by_file(store: FsspecBlobStore, checkpoint: Path, tmp_path: Path) -> None:
    name = store.put_directory(checkpoint, "policies/p1")
    for _ in range(2):
        here = store.get_directory(name, tmp_path / "cache")
        assert (here / "model.safetensors").read_bytes() == (checkpoint / "model.safetensors").read_bytes()
        assert (here / "tokenizer" / "vocab.json").read_text() == "{}"


def test_a_directory_stored_again_takes_the_new_files(store: FsspecBlobStore, checkpoint: Path, tmp_path: Path) -> None:
    store.put_directory(checkpoint, "policies/p1")
    (checkpoint / "tokenizer" / "vocab.json").write_text("[]")
    name = store.put_directory(checkpoint, "policies/p1")
    assert (store.get_directory(name, tmp_path / "cache") / "tokenizer" / "vocab.json").read_text() == "[]"


def test_the_manifest_is_written_last(
    store: FsspecBlobStore, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    put = store.put
    monkeypatch.setattr(store, "put", lambda name, data: (written.append(name), put(name, data)))
    store.put_directory(checkpoint, "p")
    assert written[-1] == f"p/{MANIFEST}"
    assert len(written) == 3


def test_a_directory_without_its_manifest_is_not_there(
    store: FsspecBlobStore, checkpoint: Path, tmp_path: Path
) -> None:
    name = store.put_directory(checkpoint, "p")
    store.delete(f"p/{MANIFEST}")
    with pytest.raises(CheckpointError, match=MANIFEST):
        store.get_directory(name, tmp_path / "cache")


def test_a_changed_file_is_named(store: FsspecBlobStore, checkpoint: Path, tmp_path: Path) -> None:
    name = store.put_directory(checkpoint, "p")
    store.put("p/model.safetensors", b"other")
    with pytest.raises(CheckpointError, match=r"model\.safetensors.*sha256"):
        store.get_directory(name, tmp_path / "cache")


def test_a_missing_file_is_named(store: FsspecBlobStore, checkpoint: Path, tmp_path: Path) -> None:
    name = store.put_directory(checkpoint, "p")
    store.delete("p/tokenizer/vocab.json")
    with pytest.raises(CheckpointError, match=r"tokenizer/vocab\.json is missing"):
        store.get_directory(name, tmp_path / "cache")


def test_an_empty_directory_is_refused(store: FsspecBlobStore, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no directory with files"):
        store.put_directory(tmp_path / "nothing", "p")


def test_an_address_of_another_store_is_refused(store: FsspecBlobStore, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not below"):
        store.get_directory("s3://elsewhere/p", tmp_path)


def test_a_full_address_below_the_store_will_do_too(store: FsspecBlobStore, checkpoint: Path, tmp_path: Path) -> None:
    name = store.put_directory(checkpoint, "policies/p1")
    here = store.get_directory(store.address(name), tmp_path / "cache")
    assert (here / "tokenizer" / "vocab.json").read_text() == "{}"


def test_a_store_that_was_moved_still_knows_its_directories(checkpoint: Path, tmp_path: Path) -> None:
    name = FsspecBlobStore.open(LakeConfig(uri=str(tmp_path / "store"))).put_directory(checkpoint, "policies/p1")
    (tmp_path / "store").rename(tmp_path / "moved")
    moved = FsspecBlobStore.open(LakeConfig(uri=str(tmp_path / "moved")))
    assert moved.get_directory(name, tmp_path / "cache") == tmp_path / "moved" / "policies" / "p1"


def test_whoever_may_read_the_folder_may_read_what_is_written_there(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    store = FsspecBlobStore.open(LakeConfig(uri=str(tmp_path / "store")))
    store.put("x", b"1")
    store.create("y", b"1")
    modes = {(tmp_path / "store" / name).stat().st_mode for name in "xy"}
    assert modes == {(tmp_path / "plain").stat().st_mode}


def test_a_local_directory_is_handed_out_without_a_copy(checkpoint: Path, tmp_path: Path) -> None:
    store = FsspecBlobStore.open(LakeConfig(uri=str(tmp_path / "store")))
    name = store.put_directory(checkpoint, "p")
    here = store.get_directory(name, tmp_path / "cache")
    assert here == Path(store.address(name))
    assert "files" in json.loads((here / MANIFEST).read_text())
