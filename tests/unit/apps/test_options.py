"""What holds for every verb: where its config comes from, the version, and completion."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from apps import last_config
from apps.cli import make_app
from apps.commands.verbs import LONG
from apps.options import resolve
from common import log
from schemas.config import load_config
from storage.lake import Lake
from tests.command import Call


def test_the_version_is_one_line(flywheel: Call) -> None:
    code, out, err = flywheel("--version")
    assert (code, err) == (0, "") and out.startswith("flywheel ") and out.count("\n") == 1


def test_a_folder_s_own_config_comes_before_the_profile_and_a_named_one_before_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flywheel: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(None, []).name == "laptop"
    code, out, _ = flywheel("init", "name=mine", "seed=3")
    assert code == 0 and "flywheel.toml is written" in out
    assert (resolve(None, []).name, resolve(None, []).seed) == ("mine", 3)
    for profile in ("laptop", "configs/laptop.toml"):
        assert resolve(Path(profile), []).name == "laptop"


def test_long_verbs_take_quiet_and_verbose(flywheel: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app: Any = typer.main.get_command(make_app())
    for name in LONG:
        command = app
        for word in name.split():
            command = command.commands[word]
        assert {"-q", "-v"} <= {option for one in command.params for option in one.opts}, name
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(log.VOLUME, "normal")
    code, _, err = flywheel("run", "-q", "-v")
    assert code == 2 and "--verbose" in err
    assert flywheel("maintain", "-q")[0] == 1 and log.volume() == "quiet"  # there is no lake


def test_init_overwrites_nothing_and_is_named_after_its_folder(tmp_path: Path, flywheel: Call) -> None:
    assert flywheel("init", "--to", tmp_path / "wheels")[0] == 0
    text = (tmp_path / "wheels/flywheel.toml").read_text()
    assert 'name = "wheels"' in text
    code, _, err = flywheel("init", "--to", tmp_path / "wheels", "seed=1")
    assert code == 2 and "There is a" in err and (tmp_path / "wheels/flywheel.toml").read_text() == text
    (tmp_path / "file").write_text("")
    assert flywheel("init", "--to", tmp_path / "file")[0] == 2


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("policy.family=nosuch", "nosuch"),
        ("policy.base=/nowhere", "`policy.base`: there is no folder /nowhere"),
        ("collect.explorer=nosuch", "nosuch"),
        ("policy.thoughts=perhaps", "policy.thoughts"),
    ],
)
def test_init_refuses_what_a_run_would_refuse_and_writes_nothing(
    tmp_path: Path, flywheel: Call, given: str, named: str
) -> None:
    code, _, err = flywheel("init", "--to", tmp_path / "wheels", given)
    assert code == 2 and named in err and not (tmp_path / "wheels").exists()


def test_commands_take_the_config_of_the_folder_s_last_run_and_print_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    lake = load_config("smoke").lake
    Lake.open(lake)
    last_config.record(Path("smoke"), lake)
    assert resolve(None, ["seed=3"]).name == "smoke"
    assert "config smoke, as in the last run here; --config names another" in capsys.readouterr().err
    assert resolve(Path("laptop"), []).name == "laptop" and capsys.readouterr().err == ""

    (tmp_path / "mine.toml").write_text('name = "mine"\n[suite]\ntasks = ["click-test"]\n')
    last_config.record(Path("mine.toml"), lake)
    assert (resolve(None, []).name, last_config.last_config()) == ("mine", str(tmp_path / "mine.toml"))
    (tmp_path / "mine.toml").rename(tmp_path / "flywheel.toml")
    capsys.readouterr()
    assert resolve(None, []).name == "mine" and capsys.readouterr().err == ""  # the folder's own config
    (tmp_path / "flywheel.toml").unlink()
    assert resolve(None, []).name == "laptop"  # the last run's file is gone

    last_config.record(Path("smoke"), lake)
    monkeypatch.chdir(tmp_path / "home")
    assert resolve(None, []).name == "laptop"  # another folder
    monkeypatch.chdir(tmp_path)
    shutil.rmtree("lake")
    assert resolve(None, []).name == "laptop"  # a new lake begins with the default


def test_a_run_with_the_default_config_ends_the_record_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    lake = load_config("smoke").lake
    Lake.open(lake)
    last_config.record(None, lake)
    assert not (tmp_path / "home").exists()
    last_config.record(Path("configs/smoke.toml"), lake)
    assert last_config.last_config() == "smoke"
    last_config.record(None, lake)
    assert last_config.last_config() is None


@pytest.mark.parametrize("held", ['["x"]', "{", '{"FOLDER": {"config": "smoke"}}', '{"FOLDER": 3}', '{"FOLDER": null}'])
def test_a_record_of_another_form_is_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / last_config.FILE).write_text(held.replace("FOLDER", str(tmp_path)))
    lake = load_config("smoke").lake
    Lake.open(lake)
    assert last_config.last_config() is None
    last_config.record(Path("smoke"), lake)
    assert last_config.last_config() == "smoke"


@pytest.mark.slow
@pytest.mark.parametrize(("words", "offered"), [("flywheel sta", "status"), ("flywheel retrain --", "--like")])
def test_a_shell_completes_verbs_and_options(words: str, offered: str) -> None:
    asked = {"_FLYWHEEL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    script = "import sys; sys.argv = ['flywheel']; from apps.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, **asked}, capture_output=True, text=True)
    assert done.returncode == 0 and offered in done.stdout.split()


@pytest.mark.slow
def test_a_first_command_in_an_empty_folder_says_nothing_of_libraries(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}
    words = [sys.executable, "-c", "from apps.cli import main; main()", "evaluate", "--policy", "nobody"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (
        done.returncode == 1 and done.stderr.startswith("flywheel: There is no lake") and done.stderr.count("\n") == 1
    )
