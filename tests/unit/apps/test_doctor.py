"""The doctor: each check says what it found, and what to do."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from apps.commands.plan import plan_of
from schemas.config import Config, config_of
from schemas.failure import CheckReport, FlywheelError, UsageError
from tasks.preflight.checks import LOCK, compare_packages
from tasks.preflight.names import shadowing
from tasks.preflight.preflight import examine, planned, probes, require
from tests.fixtures.sentences import Sentences


def found(config: Config, name: str) -> CheckReport:
    return next(probe.check() for probe in probes(config) if probe.name == name)


def changed(config: Config, **sections: dict[str, Any]) -> Config:
    fields = config.model_dump()
    for name, values in sections.items():
        fields[name] |= values
    return config_of(fields)


def test_a_healthy_place_passes_every_check(place: Any) -> None:
    checks = {check.name: check for check in examine(place.config)}
    assert set(checks) >= {"tasks", "policy", "server", "storage", "packages", "names", "memory", "cores"}
    assert all(checks[name].ok for name in ("tasks", "policy", "server", "storage", "disk of the lake", "cores"))


def test_a_file_with_the_name_of_a_module_that_flywheel_imports_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "models").mkdir()  # a folder without __init__.py hides nothing
    (tmp_path / "mine.py").write_text("")
    sentence(shadowing())
    (tmp_path / "secrets.py").write_text("")
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage/__init__.py").write_text("")
    sentence(shadowing(), "secrets.py")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with sentence.raises(UsageError, "secrets.py", hint="PYTHONPATH"):
        shadowing()
    monkeypatch.setenv("PYTHONPATH", str(LOCK.parent))
    monkeypatch.chdir(LOCK.parent)
    assert shadowing().startswith("no file")


def test_the_doctor_makes_no_lake(place: Any, tmp_path: Path) -> None:
    config = changed(place.config, lake={"uri": str(tmp_path / "new")})
    require(config)
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_no_lake_is_found(place: Any, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    storage = found(changed(place.config, lake={"uri": str(tmp_path)}), "storage")
    assert not storage.ok and "not a lake" in storage.detail and "lake.uri" in storage.hint


def test_a_base_that_is_no_model_folder_is_named_with_what_is_expected_there(
    place: Any, tmp_path: Path, sentence: Sentences
) -> None:
    policy = found(changed(place.config, policy={"base": str(tmp_path)}), "policy")
    assert not policy.ok
    sentence(policy.detail, "policy.base", "config.json", tmp_path)
    assert "Hugging Face" in policy.hint


def test_more_training_processes_than_processors_can_bear_are_refused(place: Any) -> None:
    training = found(changed(place.config, train={"processes": 100_000}), "training")
    assert not training.ok and "`train.processes=100000`" in training.detail and "auto" in training.hint
    assert found(changed(place.config, train={"processes": 4}), "training").ok


def test_missing_credentials_are_found(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    storage = found(changed(place.config, lake={"uri": "s3://bucket/lake"}), "storage")
    assert not storage.ok and "AWS_ACCESS_KEY_ID" in storage.detail


def test_a_browser_that_does_not_start_is_found(place: Any, tmp_path: Path) -> None:
    liar = tmp_path / "chromium"
    liar.write_text("#!/bin/sh\necho Chromium 1.0\n")
    liar.chmod(0o755)
    suite = {"tasks": ["click-test"], "held_out": []}
    config = changed(place.config, environments={"miniwob": {"browser": str(liar)}}, suite=suite)
    assert found(config, "miniwob: browser").ok
    started = found(config, "miniwob: browser starts")
    assert not started.ok and started.hint
    require(config)


def test_other_versions_than_the_pinned_ones_are_named(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("pytest==0.0.1\nno-such-package==1.0\n")
    with pytest.raises(FlywheelError, match=r"pytest .*no-such-package missing"):
        compare_packages(lock)


def test_the_lock_holds_exact_pins_and_no_addresses() -> None:
    lines = LOCK.read_text().splitlines()
    assert lines
    for line in lines:
        name, pin, version = line.partition("==")
        assert name and pin and version and not set(version) & set("@:/+ ")


def test_a_run_is_refused_by_the_first_failing_check(place: Any) -> None:
    with pytest.raises(FlywheelError, match="disk of the"):
        require(changed(place.config, lake={"min_free_mb": 999_999_999}))
    with pytest.raises(UsageError, match="click-targt"):
        require(changed(place.config, suite={"tasks": ["click-targt"]}))


@pytest.mark.slow
def test_the_doctor_s_exit_code_says_whether_all_is_well(place: Any) -> None:
    command = [
        sys.executable,
        "-m",
        "apps.cli",
        "doctor",
        "--json",
        "--config",
        str(place.file),
        "lake.min_free_mb=999999999",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == 1 and found["ok"] is False
    for check in found["checks"]:
        assert set(check) == {"name", "ok", "detail", "hint", "found", "mend"}
        assert (check["found"], check["mend"]) == (check["detail"], check["hint"])


REFUSED: dict[str, dict[str, Any]] = {
    "synthesis.on": {"synthesis": {"on": True}},
    "policy.base": {"policy": {"base": "/nowhere"}},
    "collect.explorer": {"collect": {"explorer": "nope"}},
    "judge.kind": {"suite": {"tasks": ["note"], "held_out": []}},
    "lake.min_free_mb": {"lake": {"min_free_mb": 999_999_999}},
}


@pytest.mark.parametrize("key", REFUSED)
def test_a_plan_is_refused_by_what_a_run_is_refused_by_in_the_same_words(place: Any, key: str) -> None:
    config = changed(place.config, **REFUSED[key])
    with pytest.raises(FlywheelError) as run:
        require(config)
    with pytest.raises(FlywheelError) as plan:
        plan_of(config, 1)
    words = [re.sub(r"\d[\d,]* MB", "MB", error.value.problem) for error in (plan, run)]
    assert words[0] == words[1] and plan.value.hint == run.value.hint


def test_a_plan_examines_all_that_a_run_requires(place: Any) -> None:
    required = [probe.name for probe in probes(place.config) if probe.required]
    assert [probe.name for probe in planned(place.config)] == required


def test_a_problem_that_several_checks_have_is_shown_once_and_names_the_environment_s_own_key(
    place: Any, tmp_path: Path
) -> None:
    environments = {"mine": {"kind": "webapp", "tasks": [str(tmp_path / "gone.toml")]}}
    fields = place.config.model_dump() | {"environments": environments, "suite": {"tasks": ["x"], "held_out": []}}
    checks = examine(config_of(fields))
    failed = [check for check in checks if not check.ok]
    problem = f"`environments.mine.tasks`: {tmp_path}/gone.toml cannot be read: No such file or directory."
    assert [check.detail for check in failed if problem in check.detail] == [problem]
    others = {check.name for check in failed if check.detail == "not examined, because of tasks"}
    assert others >= {"explorer", "judge", "mine: web applications"}


def test_a_missing_base_fails_once_and_the_checks_that_need_it_are_not_examined(place: Any) -> None:
    checks = {check.name: check for check in examine(changed(place.config, policy={"base": "/nowhere"}))}
    named = [check for check in checks.values() if not check.ok and "/nowhere" in check.detail]
    assert [check.name for check in named] == ["policy"] and "`policy.base`" in named[0].detail
    for name in ("options", "training", "processor", "device"):
        assert checks[name].detail == "not examined, because of policy"


@pytest.mark.parametrize(
    "set_keys", [{"steps": 200}, {"steps": 200, "learning_rate": 0.01, "learning_rate_first": 0.02}]
)
def test_the_doctor_lists_keys_that_the_only_training_of_a_run_does_not_read(
    place: Any, tmp_path: Path, set_keys: dict[str, Any]
) -> None:
    train, lake = place.config.train.model_dump() | set_keys, {"uri": str(tmp_path / "new")}
    once, often = (
        changed(place.config, train=train, lake=lake, **{}).model_copy(update={"iterations": n}) for n in (1, 2)
    )
    assert "train.steps_first" in found(once, "options").detail and found(once, "options").ok
    assert ("train.learning_rate_first" in found(once, "options").detail) == ("learning_rate" in set_keys)
    assert "_first" not in found(often, "options").detail
    assert "train.steps_first" in plan_of(often, 1).options and "_first" not in plan_of(once, 2).options


def test_the_doctor_says_which_of_the_server_and_this_process_acts(place: Any) -> None:
    named = {"server": {"url": "http://127.0.0.1:9/v1"}}
    for policy, acts in (
        (named, "policy.base"),
        (named | {"backend": "models.tiny.generator:TinyModel"}, "policy.backend"),
        ({}, "this process"),
    ):
        config = changed(place.config, policy=policy)
        server = next(probe.check() for probe in planned(config) if probe.name == "server")
        assert server.ok and acts in server.detail
