"""The audit of dependencies: exact pins, held against what is asked for and what is installed."""

import importlib.util
from pathlib import Path

import pytest

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
    assert "scripts/audit.py" in (ROOT / "Makefile").read_text()
