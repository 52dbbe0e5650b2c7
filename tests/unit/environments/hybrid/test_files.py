"""How the host reads and writes what a policy left: never through a link, never what is no plain file."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from environments.hybrid.files import Files, relative


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
    found = files.found("docs/deep/a.txt")
    assert found and found.executable and found.size == 3
    files.remove("docs/deep/a.txt")
    files.remove("docs/deep")
    assert files.found("docs/deep") is None and files.found("nowhere/at/all") is None


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
    assert not (entry := files.found("link.txt")) or entry.size == 0
    files.remove("link.txt")
    assert (tmp_path / "outside.txt").exists()


def test_what_is_no_plain_file_is_neither_read_nor_written_and_nobody_waits_for_it(
    files: Files, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "work/pipe")
    for path in ("pipe", "."):
        with pytest.raises(OSError):
            files.read(path)
        with pytest.raises(OSError):
            files.write(path, b"x")


def test_a_file_that_is_too_large_is_named(files: Files, tmp_path: Path) -> None:
    with (tmp_path / "work/big").open("wb") as big:
        big.truncate(10_000_000)
    with pytest.raises(ValueError, match="big is larger than"):
        files.read("big")


@pytest.mark.parametrize("path", ["../outside.txt", "a/../../outside.txt", "", "/", "a\0b", "/".join("a" * 60)])
def test_a_path_that_leads_elsewhere_is_none(files: Files, path: str) -> None:
    with pytest.raises(OSError, match="is no path"):
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
