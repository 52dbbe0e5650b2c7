"""Copies of a store's files on this machine: whole, bounded, never outside their folder, and never under a reader."""

import os
import time
from pathlib import Path

import fsspec
import pytest

from schemas.failure import LakeError
from storage.cache import IN_USE_S, FileCache


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    """A place with three files of 1000 bytes."""
    place = f"/{request.node.name}"
    for number in range(3):
        fsspec.filesystem("memory").pipe_file(f"{place}/steps/{number}.parquet", b"%d" % number * 1000)
    return place


def cache(store: str, folder: Path, generation: int = 0) -> FileCache:
    return FileCache(folder / "cache", store, fsspec.filesystem("memory"), 2500, lambda: generation)


def named(*numbers: int) -> dict[str, int]:
    return {f"steps/{number}.parquet": 1000 for number in numbers}


def copies(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "cache").rglob("*") if path.suffix == ".parquet")


def test_copies_are_whole_and_fetched_once(store: str, tmp_path: Path) -> None:
    held = cache(store, tmp_path)
    assert held.hold(named(0, 1))
    fsspec.filesystem("memory").rm(store, recursive=True)
    assert held.hold(named(0, 1))
    assert (held.folder / "steps/1.parquet").read_bytes() == b"1" * 1000
    with pytest.raises(FileNotFoundError):
        held.hold(named(2))
    assert copies(tmp_path) == ["0.parquet", "1.parquet"]


def test_what_was_not_asked_for_the_longest_goes_first_and_what_is_in_use_stays(store: str, tmp_path: Path) -> None:
    held = cache(store, tmp_path)
    held.hold(named(0, 1))
    assert not held.hold(named(0, 1, 2)), "more than there is room for is read where it lies"
    held.hold(named(2))
    assert copies(tmp_path) == ["0.parquet", "1.parquet", "2.parquet"], "all of them may be in use"
    long_ago = time.time() - IN_USE_S - 60
    for number, ago in ((0, 20), (1, 10)):
        os.utime(held.folder / f"steps/{number}.parquet", (long_ago - ago, long_ago - ago))
    (held.folder / "steps/2.parquet").unlink()
    held.hold(named(2))
    assert copies(tmp_path) == ["1.parquet", "2.parquet"]


def test_where_something_was_forgotten_all_copies_are_made_anew(store: str, tmp_path: Path) -> None:
    cache(store, tmp_path).hold(named(0, 1))
    fsspec.filesystem("memory").pipe_file(f"{store}/steps/0.parquet", b"without it")
    cache(store, tmp_path).hold(named(0))
    assert (tmp_path / "cache/steps/0.parquet").read_bytes() == b"0" * 1000
    cache(store, tmp_path, generation=1).hold(named(0))
    assert copies(tmp_path) == ["0.parquet"]
    assert (tmp_path / "cache/steps/0.parquet").read_bytes() == b"without it"


@pytest.mark.parametrize("name", ["steps/../../../escape", "/etc/passwd"])
def test_a_name_that_leads_out_of_the_folder_is_refused(name: str, store: str, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="leads out"):
        cache(store, tmp_path).hold({name: 1})
