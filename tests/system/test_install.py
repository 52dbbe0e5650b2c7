"""Installed as a package, away from the repository, the command is whole: nothing needs the project's folder."""

import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., str]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The command of a wheel in an environment of its own, with this one's packages beside it; in an empty folder."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("install")
    project, venv = folder / "project", folder / "venv"
    project.mkdir()

    def call(*words: object) -> None:
        subprocess.run([sys.executable, *map(str, words)], check=True, cwd=ROOT, capture_output=True)

    call("-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    call("-m", "venv", "--without-pip", venv)
    (wheel,) = folder.glob("*.whl")
    call("-m", "pip", "--python", venv / "bin/python", "install", "-q", "--no-deps", "--no-index", wheel)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(*words: str, **variables: str) -> str:
        env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "OMP_NUM_THREADS": "1"} | variables
        done = subprocess.run(
            [venv / "bin/flywheel", *words], cwd=project, env=env, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_a_wheel_has_its_command_its_profiles_and_its_checks(installed: Run) -> None:
    assert installed("--version").startswith("flywheel 0.")
    found = json.loads(installed("doctor", "--json"))
    checks = str(found["checks"])
    assert found["ok"] and re.search(r"2[01] tasks, scored", checks), "the hybrid one where a shell can be"
    assert "19 tasks, scored" in str(json.loads(installed("doctor", "--config", "miniwob", "--json"))["checks"])


@pytest.mark.slow
def test_a_project_of_one_s_own_begins_with_its_config(installed: Run) -> None:
    written = json.loads(installed("init", "--json", "iterations=7"))["config"]
    assert written.endswith("project/flywheel.toml")
    assert "7 more" in installed("run", "--dry-run")
    assert 'name = "project"' in Path(written).read_text()


@pytest.mark.slow
def test_a_shell_completes_verbs_and_options(installed: Run) -> None:
    asked = {"_FLYWHEEL_COMPLETE": "complete_bash", "COMP_WORDS": "flywheel sta", "COMP_CWORD": "1"}
    assert installed(**asked).split() == ["status"]
