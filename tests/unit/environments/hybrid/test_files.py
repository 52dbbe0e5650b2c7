"""How the host reads and writes what a policy left: never through a link, never what is no plain file."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from environments.hybrid.bubblewrap import owner
from environments.hybrid.files import MOST_BYTES, MOST_ENTRIES, Files, Seen, relative
from tests.fixtures.sentences import Sentences


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    (tmp_path / "outside.txt").write_text("secret")
    (tmp_path / "work").mkdir()
    root = os.open(tmp_path / "work", os.O_RDONLY | os.O_DIRECTORY)
    yield Files(root, None)
    os.close(root)


def test_what_is_written_is_read_and_listed(files: Files) -> None:
    files.write("docs/deep/a.txt", b"one")
    files.write("docs/deep/a.txt", b"two", 0o755)
    files.write("b.txt", b"")
    assert files.read("docs/deep/a.txt") == b"two"
    assert [(one.name, one.folder) for one in files.listed()] == [("docs", True), ("b.txt", False)]
    found = files.seen("docs/deep/a.txt")
    assert found and found.executable and found.content == b"two"
    files.remove("docs/deep/a.txt")
    files.remove("docs/deep")
    assert files.seen("docs/deep") is None and files.seen("nowhere/at/all") is None
    assert files.seen("b.txt/at/all") is None


def test_a_link_is_not_followed_wherever_it_stands(files: Files, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "link.txt").symlink_to(tmp_path / "outside.txt")
    (work / "out").symlink_to(tmp_path)
    (work / "up").symlink_to("..")
    for path in ("link.txt", "out/outside.txt", "up/outside.txt"):
        with pytest.raises(OSError):
            files.read(path)
        with pytest.raises(OSError):
            files.write(path, b"overwritten")
    with pytest.raises(OSError):
        files.remove("out/outside.txt")
    with pytest.raises(OSError):
        files.listed("out")
    assert (tmp_path / "outside.txt").read_text() == "secret"
    assert files.seen("link.txt") == Seen(link=str(tmp_path / "outside.txt"))
    assert files.seen("out/outside.txt") == Seen(), "something may stand there, but it is not read"
    files.remove("link.txt")
    assert (tmp_path / "outside.txt").exists()


def test_what_cannot_be_read_or_is_no_plain_file_is_not_taken_for_what_is_not_there(
    files: Files, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    files.write("large.txt", b"x" * (MOST_BYTES + 1))
    files.make_folder("folder")
    os.mkfifo(work / "pipe")
    assert [files.seen(name) for name in ("large.txt", "folder", "pipe")] == [Seen(), Seen(folder=True), Seen()]
    assert files.seen("gone.txt") is None


def test_rights_that_were_taken_away_are_lent_for_a_look_and_taken_again(tmp_path: Path) -> None:
    work, user = tmp_path / "work", owner()
    (work / "in/deep").mkdir(parents=True)
    (work / "in/deep/a.txt").write_text("content")
    locked = (work / "in/deep/a.txt", work / "in/deep", work / "in", work)
    for one in locked:
        if user:
            os.chown(one, *user)
    root = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    files = Files(root, user)
    for one in locked:
        one.chmod(0o000)
    assert files.seen("in/deep/a.txt") == Seen(b"content")
    assert files.paths() == ["in", "in/deep", "in/deep/a.txt"]
    assert files.seen("in/deep/b.txt") is None and files.seen("in") == Seen(folder=True)
    with pytest.raises(PermissionError):
        files.read("in/deep/a.txt")
    for one in reversed(locked):
        assert one.stat().st_mode & 0o777 == 0
        one.chmod(0o700)
    os.close(root)


def test_all_that_stands_anywhere_is_named_without_following_a_link(files: Files, tmp_path: Path) -> None:
    files.write("a/b/c.txt", b"one")
    (tmp_path / "work/.hidden").symlink_to(tmp_path)
    (tmp_path / "work" / os.fsdecode(b"\xff.txt")).write_text("x")
    found = files.paths()
    assert found and sorted(found) == [".hidden", "a", "a/b", "a/b/c.txt", os.fsdecode(b"\xff.txt")]
    assert files.seen(os.fsdecode(b"\xff.txt")) == Seen(b"x")


@pytest.mark.parametrize("names", [["/".join("d" * 33)], [f"f{number}" for number in range(MOST_ENTRIES + 1)]])
def test_what_is_too_much_or_too_deep_to_be_looked_through_is_not_half_told(
    files: Files, tmp_path: Path, names: list[str]
) -> None:
    for name in names:
        (tmp_path / "work" / name).mkdir(parents=True)
    assert files.paths() is None


def test_what_is_no_plain_file_is_neither_read_nor_written_and_nobody_waits_for_it(
    files: Files, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "work/pipe")
    for path in ("pipe", "."):
        with pytest.raises(OSError):
            files.read(path)
        with pytest.raises(OSError):
            files.write(path, b"x")


def test_a_file_that_is_too_large_is_named(files: Files, tmp_path: Path, sentence: Sentences) -> None:
    with (tmp_path / "work/big").open("wb") as big:
        big.truncate(10_000_000)
    with sentence.raises(ValueError):
        files.read("big")


@pytest.mark.parametrize("path", ["../outside.txt", "a/../../outside.txt", "", "/", "a\0b", "/".join("a" * 60)])
def test_a_path_that_leads_elsewhere_is_none(files: Files, path: str) -> None:
    with pytest.raises(OSError, match="is not a path"):
        files.write(path, b"x")


def test_names_that_are_no_text_are_left_out(files: Files, tmp_path: Path) -> None:
    (tmp_path / "work" / os.fsdecode(b"\xff.txt")).write_text("x")
    assert files.listed() == []


@pytest.mark.parametrize(
    ("given", "path"),
    [("a.txt", "a.txt"), ("/work/a.txt", "a.txt"), ("./b/../a.txt", "a.txt"), ("/work", ""), ("b//c", "b/c")],
)
def test_a_policy_s_path_is_below_work(given: str, path: str) -> None:
    assert relative(given) == path


@pytest.mark.parametrize("given", ["/etc/passwd", "../etc/passwd", "../../../..", "/work/../tmp/x"])
def test_a_policy_s_path_that_is_elsewhere_is_named(given: str) -> None:
    with pytest.raises(ValueError, match="is not below /work"):
        relative(given)
