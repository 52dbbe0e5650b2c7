"""The profile `smoke`, as its users run it: in an empty folder, on a machine without a browser or a model."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flywheel
from tests.flows.test_import_flow import data_set, line

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_command_in_an_empty_folder_gives_a_measured_policy_without_a_browser(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "FLYWHEEL_HOME": str(tmp_path / "home"), "PATH": str(tmp_path)}
    environ.pop("PREFECT_API_URL", None)
    command = [sys.executable, "-m", "apps.cli", "run", "--config", "smoke"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lake = flywheel.open(tmp_path / "lake")
    prepared, iteration = lake.iterations()
    assert prepared.explorer and iteration.trajectories == 80 and iteration.success is not None and iteration.finished
    assert (tmp_path / "lake/report/index.html").is_file()
    again = subprocess.run(
        [*command[:3], "retrain", "--dry-run"], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert again.returncode == 0 and "config smoke, as in the last run here" in again.stderr, again.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_three_commands_for_records_need_no_model_with_the_keys_that_the_page_names(tmp_path: Path) -> None:
    page = (ROOT / "docs/begin.md").read_text()
    (block,) = re.findall(r"^```\n(flywheel data import .*?)^```", page, re.DOTALL | re.MULTILINE)
    (trial,) = re.findall(r"write `(--config smoke [^`]*)`\s+in place of `policy.base=...`", page)
    data_set(tmp_path / "RECORDS", [line(number, completed=None) for number in range(4)])
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "FLYWHEEL_HOME": str(tmp_path / "home")}
    environ.pop("PREFECT_API_URL", None)
    for command in re.sub(r"policy\.base=\S+", trial, block).splitlines():
        words = [sys.executable, "-m", "apps.cli", *command.split()[1:]]
        done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "my-policy/model.safetensors").is_file()
