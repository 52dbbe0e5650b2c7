"""Building the Python of a worker, from a lock file that names nothing, so that no network is needed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from environments import programs
from environments.programs import run
from environments.workers import build
from environments.workers.build import ANDROIDWORLD, MOBILEGYM, MODULES, Module, add, find_python, python_in, record_of
from schemas.failure import FlywheelError, UsageError
from tests.fixtures.sentences import Sentences

EMPTY = Module("nothing", "pip", (3, 11), (3, 13))


@pytest.mark.slow
def test_a_python_is_built_once_and_a_build_that_was_broken_off_is_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    (tmp_path / "nothing.txt").write_text("pip\n")
    monkeypatch.setattr(build, "LOCKS", tmp_path)
    to, said = tmp_path / "venv", list[str]()
    to.mkdir()
    (to / build.BEGUN).touch()
    added = add(EMPTY, to, sys.executable, said.append)
    assert record_of(to) == added and python_in(to).exists() and not (to / build.BEGUN).exists()
    assert said[1] == "1 package"
    assert add(EMPTY, to, sys.executable, said.append) == added
    sentence(said[-1])


def test_a_folder_that_holds_something_else_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    (tmp_path / "nothing.txt").write_text("")
    monkeypatch.setattr(build, "LOCKS", tmp_path)
    with sentence.raises(UsageError):
        add(EMPTY, tmp_path, sys.executable, print)


HOLDS = """
from environments.programs import alone; from pathlib import Path; import sys, time
with alone(Path(sys.argv[1]), "nothing"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_second_process_is_refused_and_told_who_builds_there_until_that_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    (tmp_path / "nothing.txt").write_text("pip\n")
    monkeypatch.setattr(build, "LOCKS", tmp_path)
    to = tmp_path / "venv"
    (to / "half").mkdir(parents=True)
    (to / build.BEGUN).touch()
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(to)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        try:
            with sentence.raises(FlywheelError, other.pid, PROCESS=other.pid):
                add(EMPTY, to, sys.executable, print)
            assert (to / "half").exists()
        finally:
            other.kill()
    assert record_of(to) is None and add(EMPTY, to, sys.executable, print) == record_of(to)


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nothing", "/proc/self"])
def test_a_folder_that_cannot_be_made_is_refused_by_its_option(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    (tmp_path / "nothing.txt").write_text("")
    (tmp_path / "file").touch()
    monkeypatch.setattr(build, "LOCKS", tmp_path)
    with sentence.raises(UsageError, "`--dir`", PROCESS=re.compile(r"(?<=/proc/)\d+")):
        add(EMPTY, tmp_path / place, sys.executable, print)


def test_a_full_disk_is_named_whether_a_program_says_so_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    fails = ("/bin/sh", "-c", "echo returned non-zero exit status 1; exit 1")
    with sentence.raises(FlywheelError, "`sh -c`", "non-zero"):
        run(fails, tmp_path, 10)
    says = ("/bin/sh", "-c", "echo 'OSError: [Errno 28] No space left on device'; exit 1")
    with sentence.raises(FlywheelError, "`sh -c`", tmp_path, FREE=re.compile(r"[\d.]+ MB")):
        run(says, tmp_path, 10)
    monkeypatch.setattr(programs, "FULL_BELOW", shutil.disk_usage(tmp_path).total)
    with sentence.raises(FlywheelError, "`sh -c`", tmp_path, FREE=re.compile(r"[\d.]+ MB")):
        run(fails, tmp_path, 10)


def test_a_python_that_does_not_do_is_refused_with_those_that_do(
    monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    old = Module("old", "pip", (2, 6), (2, 6))
    with sentence.raises(UsageError, PYTHON=sys.executable, VERSION=".".join(map(str, sys.version_info[:3]))):
        find_python(old, sys.executable)
    with pytest.raises(UsageError, match="does not run"):
        find_python(EMPTY, "/nowhere/python")
    monkeypatch.setenv("PATH", "")
    with sentence.raises(FlywheelError, hint="--python"):
        find_python(old)


def test_cube_without_a_python_3_12_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sentence: Sentences
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setattr(build.sys, "executable", "/nowhere/python")
    with sentence.raises(FlywheelError, hint="--python"):
        find_python(MODULES["cube"])
    kept = tmp_path / "versions" / "3.12.99" / "bin" / "python"
    kept.parent.mkdir(parents=True)
    kept.write_text("#!/bin/sh\necho 3 12 99\n")
    kept.chmod(0o755)
    assert find_python(MODULES["cube"]) == (kept, "3.12.99")


@pytest.mark.parametrize("module", [*MODULES.values(), MOBILEGYM, ANDROIDWORLD], ids=lambda module: module.name)
def test_every_line_of_a_lock_file_is_an_exact_version(module: Module) -> None:
    lines = module.lock.read_text().splitlines()
    assert lines and all(line.count("==") == 1 and " " not in line for line in lines)
    assert any(line.startswith(f"{module.package}==") for line in lines)
