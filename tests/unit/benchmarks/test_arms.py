"""Arms of a learning benchmark: interrupted anywhere, resumed, never mixed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.arms import _alone, _kept, root_of
from tests.fixtures.sentences import Sentences

CONFIG = '[suite]\ntasks = ["{task}"]\n'


def test_arms_of_different_configs_lie_in_different_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path))
    (tmp_path / "one.toml").write_text(CONFIG.format(task="click-test"))
    (tmp_path / "two.toml").write_text(CONFIG.format(task="click-tab"))
    one, two = (root_of(str(tmp_path / name), []) for name in ("one.toml", "two.toml"))
    assert one != two and one == root_of(str(tmp_path / "one.toml"), [])
    assert root_of(str(tmp_path / "one.toml"), ["train.steps=7"]) not in (one, two)


def test_a_measurement_is_made_once_and_one_that_failed_leaves_nothing(tmp_path: Path):
    def fails() -> str:
        raise RuntimeError("cut short")

    with pytest.raises(RuntimeError):
        _kept(tmp_path / "test.json", fails)
    assert _kept(tmp_path / "test.json", lambda: json.dumps({"success": 0.5})) == {"success": 0.5}
    assert _kept(tmp_path / "test.json", fails) == {"success": 0.5}
    assert [path.name for path in tmp_path.iterdir()] == ["test.json"]


def test_an_arm_that_an_orphaned_process_still_runs_is_left_alone(tmp_path: Path, sentence: Sentences):
    with _alone(tmp_path) as lock:
        orphan = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    with sentence.raises(SystemExit), _alone(tmp_path):
        pass
    orphan.communicate(b"\n")
    with _alone(tmp_path) as lock:
        assert os.fstat(lock)
