"""What a user brings comes in by config alone: a package that is installed beside the project turns two iterations."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.config.sections import LakeConfig
from storage.lake import Lake
from tests.command import Call
from tests.tiers import NIGHTLY

ROOT = Path(__file__).parents[2]
PACKAGE = Path(__file__).parent / "extension"
GUIDE = sorted((ROOT / "docs").glob("extend*.md"))
UNKNOWN = (
    "environments.lamps.colour=red", "filter.options.brief.most=1", "judge.options.want=1", "train.options.focal=1"
)  # fmt: skip
BLOCK = re.compile(r"^`(\S+)`:\n\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
"""A file of the guide: its name, then its text."""


def files_of_the_guide() -> dict[str, str]:
    return {name: text for page in GUIDE for name, text in BLOCK.findall(page.read_text())}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the guide, written as it says and installed as any package is."""
    written, place = tmp_path_factory.mktemp("lamps"), tmp_path_factory.mktemp("site")
    for name, text in files_of_the_guide().items():
        (written / name).parent.mkdir(exist_ok=True)
        (written / name).write_text(text)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(place)]
    subprocess.run([*pip, str(written)], check=True, timeout=120)
    (place / "lamps.toml").write_text((written / "lamps.toml").read_text())
    return place


def started(installed: Path, folder: Path, *asked: str) -> subprocess.CompletedProcess[str]:
    places = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH", str(ROOT))]))
    environ = {**os.environ, "PYTHONPATH": places, "FLYWHEEL_HOME": str(folder / "work")}
    command = [sys.executable, "-m", "apps.cli", *asked, "--config", str(installed / "lamps.toml")]
    return subprocess.run(
        [*command, f"lake.uri={folder}/lake", "lake.min_free_mb=10"],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip


def test_the_guide_is_the_package_to_the_letter() -> None:
    told = files_of_the_guide()
    there = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.*") if path.is_file()}
    assert told == {name: text for name, text in there.items() if "__pycache__" not in name}


ITERATIONS = 2 if NIGHTLY else 1


@pytest.mark.slow
def test_an_environment_a_gate_a_judge_and_a_method_from_outside_turn_iterations(
    installed: Path, tmp_path: Path
) -> None:
    done = started(installed, tmp_path, "run", "--iterations", str(ITERATIONS))
    assert done.returncode == 0, done.stderr
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")), create=False)
    solved = {row["task_id"] for row in lake.read("trajectories").to_pylist() if row["success"]}
    assert {"lamps/switch-on", "lamps/click-twice", "fake/click-one"} <= solved
    verdicts = lake.read("verdicts").to_pylist()
    assert {row["gate"] for row in verdicts} >= {"environment", "loops", "brief", "verifier", "judge", "route"}
    assert any(row["gate"] == "brief" and not row["passed"] for row in verdicts)
    assert all("clicks-1" in row["gate_version"] for row in verdicts if row["gate"] == "judge")
    methods = [row["method"] for row in lake.read("policies").to_pylist()]
    assert methods.count("lamps.method:METHOD") == ITERATIONS


@pytest.fixture
def asked(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """What a command in this process is asked with to know the package."""
    monkeypatch.syspath_prepend(installed)
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "work"))
    return ("--config", str(installed / "lamps.toml"), f"lake.uri={tmp_path}/lake", "lake.min_free_mb=10")


@pytest.mark.parametrize("override", UNKNOWN)
def test_an_option_that_a_part_from_outside_does_not_know_is_refused_by_name(
    override: str, asked: tuple[str, ...], flywheel: Call, tmp_path: Path
) -> None:
    code, _, errors = flywheel("run", override, *asked)
    assert code == 2, errors
    assert override.partition("=")[0] in errors
    assert not (tmp_path / "lake").exists()


def test_doctor_and_the_plan_know_what_came_from_outside(asked: tuple[str, ...], flywheel: Call) -> None:
    _, checks, errors = flywheel("doctor", "--json", *asked)
    assert json.loads(checks)["checks"], errors
    assert flywheel("run", "--dry-run", *asked)[0] == 0
