"""A folder is written whole or not at all, and what a killed process left of one is swept by the next."""

import subprocess
import sys
from pathlib import Path

import pytest

from common.atomic_folder import BEGIN, LOCK, atomic_folder, swept

WRITES = "from common.atomic_folder import atomic_folder; from pathlib import Path; import sys\n"
WRITES += "with atomic_folder(Path(sys.argv[1])) as whole: whole.mkdir(); print('here', flush=True); sys.stdin.read()"


def left_by(target: Path) -> list[Path]:
    return sorted(target.parent.glob(f"{BEGIN}*"))


def test_it_is_there_as_the_block_ends_and_nothing_is_where_it_fails(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "a" / "out") as whole:
        whole.mkdir()
        (whole / "file").write_text("text")
        assert not (tmp_path / "a" / "out").exists()
    assert [one.name for one in (tmp_path / "a").rglob("*")] == ["out", "file"]
    with pytest.raises(ValueError), atomic_folder(tmp_path / "a" / "other") as whole:
        whole.mkdir()
        raise ValueError
    assert [one.name for one in (tmp_path / "a").iterdir()] == ["out"]


def test_what_a_killed_process_left_is_swept_and_what_another_writes_or_is_not_ours_stays(tmp_path: Path) -> None:
    target = tmp_path / "out"
    (tmp_path / f"{BEGIN}mine").mkdir()
    (tmp_path / f"{BEGIN}link").symlink_to(tmp_path)
    others = left_by(target)
    words = [sys.executable, "-c", WRITES, str(target)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writes:
        assert writes.stdout is not None and writes.stdout.readline() == "here\n"
        (folder,) = set(left_by(target)) - set(others)
        assert (folder / LOCK).is_file() and swept(target) == []
        writes.kill()
    assert folder.is_dir() and swept(target) == [folder]
    assert left_by(target) == others and swept(target) == [] and not target.exists()
