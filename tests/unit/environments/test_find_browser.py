"""Where a browser is looked for."""

import time
from pathlib import Path

import psutil
import pytest

from environments.chromium import browser
from environments.chromium.browser import VARIABLE, browser_version, find_browser
from schemas.failure import FlywheelError
from tests.fixtures.sentences import Sentences


def program(path: Path, body: str = "echo Chromium 1.2.3") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_a_path_in_the_config_comes_before_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    here, there = program(tmp_path / "here"), program(tmp_path / "there")
    monkeypatch.setenv(VARIABLE, str(there))
    assert find_browser(str(here)) == here
    assert find_browser() == there


def test_a_path_that_is_no_program_is_refused_with_the_field_and_the_hint(tmp_path: Path):
    with pytest.raises(FlywheelError, match=r"environments\.miniwob\.browser.*apt install"):
        find_browser(str(tmp_path / "missing"))


def test_the_version_is_what_the_browser_says(tmp_path: Path):
    assert browser_version(program(tmp_path / "browser")) == "Chromium 1.2.3"


def test_a_browser_that_does_not_run_is_refused(tmp_path: Path):
    with pytest.raises(FlywheelError, match="does not run"):
        browser_version(program(tmp_path / "broken", "exit 127"))


def test_a_browser_that_hangs_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
):
    monkeypatch.setattr(browser, "VERSION_TIMEOUT_S", 1.0)
    wrapper = program(tmp_path / "wrapper", f"sleep 1000 &\necho $! > {tmp_path / 'child'}\nwait")
    with sentence.raises(FlywheelError, hint="apt install chromium-headless-shell"):
        browser_version(wrapper)
    child, until = int((tmp_path / "child").read_text()), time.monotonic() + 5
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until, "it runs still"
        time.sleep(0.05)
