"""The audit of dependencies: exact pins, held against what is asked for and what is installed."""

import importlib.util
import json
from pathlib import Path

import pytest

from tests.fixtures.sentences import Sentences

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("audit", ROOT / "scripts/audit.py")
assert _SPEC is not None and _SPEC.loader is not None
audit = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(audit)


def test_what_is_installed_is_held_against_the_pins() -> None:
    pins = audit.pins_of("torch==2.13.0\nJinja2==3.1.6\n")
    assert audit.differing({"torch": "2.13.0+cpu", "jinja2": "3.1.6", "pip": "1"}, pins) == []
    assert audit.differing({"torch": "2.12.0", "evil": "1.0"}, pins) == [
        "evil 1.0 (not pinned)",
        "torch 2.12.0 (pinned 2.13.0)",
    ]


@pytest.mark.parametrize("line", ["torch>=2", "evil @ https://evil.example/x.whl", "-e .", "torch==2.*", "# torch"])
def test_a_line_that_is_no_exact_pin_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="no exact pin"):
        audit.pins_of(line)


def test_everything_the_project_asks_for_is_in_the_lock_in_that_very_version() -> None:
    pins = audit.pins_of((ROOT / "requirements.lock").read_text())
    assert audit.unpinned((ROOT / "pyproject.toml").read_text(), pins) == []
    asked = '[project]\ndependencies = ["torch==1.0", "loose>=2"]\n[project.optional-dependencies]\nx = ["new==1"]\n'
    assert audit.unpinned(asked, pins) == ["loose>=2", "new==1", "torch==1.0"]


def test_make_check_runs_it() -> None:
    assert "scripts/audit.py $(AUDIT)" in (ROOT / "Makefile").read_text()


PINS = {"requests": "2.19.0", "duckdb": "2.0.1"}
SKIPPED = {"name": "duckdb", "skip_reason": "Dependency not found on PyPI and could not be audited: duckdb (2.0.1)"}
CLEAN = {"name": "DuckDB", "version": "2.0.1", "vulns": []}
FLAW = {"id": "PYSEC-2018-28", "fix_versions": ["2.20.0"], "aliases": ["CVE-2018-18074"], "description": "x"}
FLAWED = {"name": "requests", "version": "2.19.0", "vulns": [FLAW]}


@pytest.mark.parametrize(
    ("report", "printed", "status", "complete"),
    [
        ([FLAWED, CLEAN], ["requests 2.19.0: PYSEC-2018-28, fixed in 2.20.0", "2 of 2 packages were looked up"], 1, 1),
        ([{**FLAWED, "vulns": []}, CLEAN], ["2 of 2 packages were looked up for known vulnerabilities\n"], 0, 0),
        ([{**FLAWED, "vulns": []}, SKIPPED], ["1 of 2 packages", "not found on PyPI"], 0, 1),
        ([{**SKIPPED, "name": "requests"}, SKIPPED], ["0 of 2 packages", "not found on PyPI"], 0, 1),
        ([CLEAN], ["1 of 2 packages", "it does not list requests"], 0, 1),
        ([], ["0 of 2 packages"], 0, 1),
        (None, ["0 of 2 packages", "pip-audit ended with 3: no route to host"], 0, 1),
    ],
)
def test_the_number_of_packages_that_were_looked_up_is_printed_and_may_be_required(
    report: list[object] | None, printed: list[str], status: int, complete: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The reports are those of pip-audit 2.10.1, which ends with 0 where it skips every package."""
    answer = "echo no route to host >&2; exit 3"
    if report is not None:
        (tmp_path / "report.json").write_text(json.dumps({"dependencies": report, "fixes": []}))
        answer = f"cat {tmp_path}/report.json; exit {int(FLAWED in report)}"
    program = tmp_path / "pip-audit"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert (audit.known_vulnerable(PINS), audit.known_vulnerable(PINS, complete=True)) == (status, complete)
    told = capsys.readouterr().out
    assert all(one in told for one in printed) and "No known" not in told


def test_without_pip_audit_none_is_looked_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert audit.known_vulnerable(PINS) == 0 and audit.known_vulnerable(PINS, complete=True) == 1
    sentence.lines(capsys.readouterr().out, "pip-audit")
