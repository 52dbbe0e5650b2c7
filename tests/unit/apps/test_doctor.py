"""The doctor: each check says what it found, and what to do."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from apps import doctor
from schemas.config import Config, config_of
from schemas.failure import FlywheelError, UsageError


def changed(config: Config, **sections: dict[str, Any]) -> Config:
    fields = config.model_dump()
    for name, values in sections.items():
        fields[name] |= values
    return config_of(fields)


def test_a_healthy_place_passes_every_check(place: Any) -> None:
    checks = {check.name: check for check in doctor.examine(place.config)}
    assert set(checks) >= {"tasks", "browser", "storage", "browser starts", "packages", "memory", "cores"}
    assert all(checks[name].ok for name in ("tasks", "browser", "storage", "disk of the lake", "cores"))


def test_the_doctor_makes_no_lake(place: Any, tmp_path: Path) -> None:
    config = changed(place.config, lake={"uri": str(tmp_path / "new")})
    assert all(check.ok for check in doctor.quick_checks(config))
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_no_lake_is_found(place: Any, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    storage = doctor.quick_checks(changed(place.config, lake={"uri": str(tmp_path)}))[2]
    assert not storage.ok and "not a lake" in storage.found and "lake.uri" in storage.mend


def test_missing_credentials_are_found(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    storage = doctor.quick_checks(changed(place.config, lake={"uri": "s3://bucket/lake"}))[2]
    assert not storage.ok and "AWS_ACCESS_KEY_ID" in storage.found


def test_a_browser_that_does_not_start_is_found(place: Any, tmp_path: Path) -> None:
    liar = tmp_path / "chromium"
    liar.write_text("#!/bin/sh\necho Chromium 1.0\n")
    liar.chmod(0o755)
    suite = {"tasks": ["click-test"], "held_out": []}
    config = changed(place.config, environment={"kind": "miniwob", "browser": str(liar)}, suite=suite)
    assert doctor.quick_checks(config)[1].ok
    started = doctor.check_start(config)
    assert not started.ok and started.mend


def test_other_versions_than_the_pinned_ones_are_named(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("pytest==0.0.1\nno-such-package==1.0\n")
    check = doctor.check_versions(lock)
    assert not check.ok
    assert "pytest" in check.found and "no-such-package missing" in check.found


def test_the_lock_holds_exact_pins_and_no_addresses() -> None:
    lines = doctor.LOCK.read_text().splitlines()
    assert lines
    for line in lines:
        name, pin, version = line.partition("==")
        assert name and pin and version and not set(version) & set("@:/+ ")


def test_a_run_is_refused_by_the_first_failing_check(place: Any) -> None:
    with pytest.raises(FlywheelError, match="disk of the"):
        doctor.require_quick(changed(place.config, lake={"min_free_mb": 999_999_999}))
    with pytest.raises(UsageError, match="click-targt"):
        doctor.require_quick(changed(place.config, suite={"tasks": ["click-targt"]}))


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
    assert {"name", "ok", "found", "mend"} == set(found["checks"][0])
