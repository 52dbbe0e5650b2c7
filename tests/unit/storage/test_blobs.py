"""A stored directory is whole or it is not there."""

import json
import threading
from pathlib import Path

import pytest

from schemas.config.sections import LakeConfig
from schemas.failure import CheckpointError
from storage.address import resolve
from storage.blobs import MANIFEST, Blobs
from storage.objects import ObjectStore
from tests.fixtures.sentences import Sentences


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    uri = str(tmp_path / "store") if request.param == "folder" else f"memory://{tmp_path.name}"
    return resolve(LakeConfig(uri=uri)).store()


@pytest.fixture
def blobs(store: ObjectStore) -> Blobs:
    return Blobs(store)


def local(folder: Path) -> Blobs:
    return Blobs(resolve(LakeConfig(uri=str(folder))).store())


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    (folder / "tokenizer").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 100)
    (folder / "tokenizer" / "vocab.json").write_text("{}")
    return folder


def test_bytes_come_back_as_they_were_put(store: ObjectStore) -> None:
    store.put("a/b", b"one")
    store.put("a/b", b"two")
    assert store.get("a/b") == b"two"
    assert store.exists("a/b") and not store.exists("a/c")


def test_a_missing_blob_is_a_file_not_found_error(store: ObjectStore) -> None:
    with pytest.raises(FileNotFoundError):
        store.get("nothing")


def test_names_are_listed_below_a_folder_and_deleted(store: ObjectStore) -> None:
    for name in ("a/1", "a/2", "b/3"):
        store.put(name, b"..")
    assert store.sizes() == {"a/1": 2, "a/2": 2, "b/3": 2}
    assert sorted(store.sizes("a")) == ["a/1", "a/2"] and not store.sizes("c")
    store.delete("a/1")
    store.delete("a/1")
    assert sorted(store.sizes()) == ["a/2", "b/3"]


def test_a_folder_gets_another_name_with_all_that_is_in_it(store: ObjectStore) -> None:
    for name in ("a/1", "a/x/2", "b/3"):
        store.put(name, name.encode())
    store.move("a", "c")
    assert sorted(store.sizes()) == ["b/3", "c/1", "c/x/2"] and store.get("c/x/2") == b"a/x/2"


def test_of_several_writers_exactly_one_creates_a_file(tmp_path: Path) -> None:
    store, won = local(tmp_path).store, []
    writers = [threading.Thread(target=lambda i=i: won.append(store.put_once("x", b"%d" % i))) for i in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(won) == [False] * 7 + [True]
    assert list(store.sizes()) == ["x"]


def test_a_directory_comes_back_file_by_file(blobs: Blobs, checkpoint: Path, tmp_path: Path) -> None:
    name = blobs.put_directory(checkpoint, "policies/p1")
    for _ in range(2):
        here = blobs.get_directory(name, tmp_path / "cache")
        assert (here / "model.safetensors").read_bytes() == (checkpoint / "model.safetensors").read_bytes()
        assert (here / "tokenizer" / "vocab.json").read_text() == "{}"


def test_a_directory_stored_again_takes_the_new_files(blobs: Blobs, checkpoint: Path, tmp_path: Path) -> None:
    blobs.put_directory(checkpoint, "policies/p1")
    (checkpoint / "tokenizer" / "vocab.json").write_text("[]")
    name = blobs.put_directory(checkpoint, "policies/p1")
    assert (blobs.get_directory(name, tmp_path / "cache") / "tokenizer" / "vocab.json").read_text() == "[]"


def test_a_directory_without_its_manifest_is_not_there(blobs: Blobs, checkpoint: Path, tmp_path: Path) -> None:
    name = blobs.put_directory(checkpoint, "p")
    blobs.store.delete(f"p/{MANIFEST}")
    with pytest.raises(CheckpointError, match=MANIFEST):
        blobs.get_directory(name, tmp_path / "cache")


def test_a_changed_file_is_named(blobs: Blobs, checkpoint: Path, tmp_path: Path) -> None:
    name = blobs.put_directory(checkpoint, "p")
    blobs.store.put("p/model.safetensors", b"other")
    with pytest.raises(CheckpointError, match=r"model\.safetensors.*sha256"):
        blobs.get_directory(name, tmp_path / "cache")


def test_a_missing_file_is_named(blobs: Blobs, checkpoint: Path, tmp_path: Path) -> None:
    name = blobs.put_directory(checkpoint, "p")
    blobs.store.delete("p/tokenizer/vocab.json")
    with pytest.raises(CheckpointError, match=r"tokenizer/vocab\.json is missing"):
        blobs.get_directory(name, tmp_path / "cache")


def test_an_empty_directory_is_refused(blobs: Blobs, tmp_path: Path, sentence: Sentences) -> None:
    with sentence.raises(CheckpointError):
        blobs.put_directory(tmp_path / "nothing", "p")


def test_an_address_of_another_store_is_refused(blobs: Blobs, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not below"):
        blobs.get_directory("s3://elsewhere/p", tmp_path)


def test_a_full_address_below_the_store_will_do_too(blobs: Blobs, checkpoint: Path, tmp_path: Path) -> None:
    name = blobs.put_directory(checkpoint, "policies/p1")
    here = blobs.get_directory(blobs.store.path(name), tmp_path / "cache")
    assert (here / "tokenizer" / "vocab.json").read_text() == "{}"


def test_a_store_that_was_moved_still_knows_its_directories(checkpoint: Path, tmp_path: Path) -> None:
    name = local(tmp_path / "store").put_directory(checkpoint, "policies/p1")
    (tmp_path / "store").rename(tmp_path / "moved")
    moved = local(tmp_path / "moved")
    assert moved.get_directory(name, tmp_path / "cache") == tmp_path / "moved" / "policies" / "p1"


def test_whoever_may_read_the_folder_may_read_what_is_written_there(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    blobs = local(tmp_path / "store")
    blobs.store.put("x", b"1")
    blobs.store.put_once("y", b"1")
    modes = {(tmp_path / "store" / name).stat().st_mode for name in "xy"}
    assert modes == {(tmp_path / "plain").stat().st_mode}


def test_a_local_directory_is_handed_out_without_a_copy(checkpoint: Path, tmp_path: Path) -> None:
    blobs = local(tmp_path / "store")
    name = blobs.put_directory(checkpoint, "p")
    here = blobs.get_directory(name, tmp_path / "cache")
    assert here == Path(blobs.store.path(name))
    assert "files" in json.loads((here / MANIFEST).read_text())


def test_a_load_hashes_only_what_was_changed_since_it_was_stored(
    blobs: Blobs, tmp_path: Path, sentence: Sentences
) -> None:
    folder, size = tmp_path / "big", 20_000_000
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(bytes(size))
    before = read_so_far()
    name = blobs.put_directory(folder, "p")
    assert read_so_far() - before < 1.1 * size, "stored: read once"
    before = read_so_far()
    here = blobs.get_directory(name, tmp_path / "cache")
    assert read_so_far() - before < 0.1 * size, "handed out"
    assert blobs.get_directory(name, tmp_path / "cache") == here
    assert read_so_far() - before < 0.1 * size, "handed out again"
    with (here / "model.safetensors").open("r+b") as file:
        file.write(b"!")
    with sentence.raises(CheckpointError, "model.safetensors"):
        blobs.get_directory(name, tmp_path / "cache")


def test_what_is_not_needed_is_not_fetched(blobs: Blobs, checkpoint: Path, tmp_path: Path) -> None:
    name = blobs.put_directory(checkpoint, "p")
    blobs.store.delete("p/tokenizer/vocab.json")
    here = blobs.get_directory(name, tmp_path / "cache", without=("tokenizer/",))
    assert (here / "model.safetensors").exists() and not (here / "tokenizer" / "vocab.json").exists()


def test_a_directory_that_an_earlier_version_stored_is_checked_and_handed_out(
    blobs: Blobs, checkpoint: Path, tmp_path: Path
) -> None:
    name = blobs.put_directory(checkpoint, "p")
    known = json.loads(blobs.store.get(f"p/{MANIFEST}"))
    blobs.store.put(f"p/{MANIFEST}", json.dumps({"files": known["files"]}).encode())
    assert (blobs.get_directory(name, tmp_path / "cache") / "tokenizer" / "vocab.json").exists()


def read_so_far() -> int:
    """Bytes that this process has read by system calls, in all."""
    return int(Path("/proc/self/io").read_text().splitlines()[0].split()[1])
