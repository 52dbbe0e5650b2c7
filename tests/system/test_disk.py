"""Disks that are full or cannot be written: one line that says so, nothing lost, and the same command goes on."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from schemas.config import load_config
from storage.lake import Lake
from tests.system.parts.commands import SHORT, Command, start, start_verb
from tests.tiers import lacks

Remount = Callable[[str], None]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Remount]]:
    """A small disk of its own, and how to change its options."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(lacks("no right to mount a disk", "run the tests as root"))
    try:
        yield place, lambda options: _run("mount", "-o", f"remount,{options}", str(place))
    finally:
        _run("umount", "-l", str(place))


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def config(tmp_path: Path, lake: Path) -> Path:
    text = SHORT.format(lake=lake).replace("min_free_mb = 10", "min_free_mb = 0")
    (tmp_path / "small.toml").write_text(text.replace("vision_layers = 1\n", "").replace("layers = 1\n", ""))
    return tmp_path / "small.toml"


def ended(command: Command) -> tuple[int, list[str]]:
    code = command.process.wait(timeout=200)
    return code, [line for line in command.log.read_text().splitlines() if not line.startswith(" ")]


@pytest.mark.nightly
def test_a_disk_that_fills_up_ends_a_run_in_one_line_and_with_more_space_it_goes_on(
    tmp_path: Path, disk: tuple[Path, Remount]
) -> None:
    place, remount = disk
    small = config(tmp_path, place / "lake")
    remount("size=3m")
    code, said = ended(start(small))
    assert code == 1 and len(said) == 2 and said[0].startswith("Starting "), said
    assert said[1].startswith(f"flywheel: No space is left at {place / 'lake'}"), said
    remount("size=64m")
    code, said = ended(start(small))
    assert code == 0, said


@pytest.mark.slow
def test_a_lake_that_cannot_be_written_is_read_and_otherwise_refused_in_one_line(
    tmp_path: Path, disk: tuple[Path, Remount]
) -> None:
    place, remount = disk
    small = config(tmp_path, place / "lake")
    Lake.open(load_config(small, [], {}).lake)
    remount("ro")
    for verb in ("run", "report"):
        code, said = ended(start_verb(small, verb))
        assert code == 1 and len(said) == 1 and "Read-only file system" in said[0], said
    code, said = ended(start_verb(small, "doctor"))
    assert code == 1 and sum("Read-only file system" in line for line in said) == 1, said
    code, said = ended(start_verb(small, "status"))
    assert code == 0, said
