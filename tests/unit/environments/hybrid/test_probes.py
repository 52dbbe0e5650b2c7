"""Where no shell can be isolated the environment says why, before anything is spent; nothing runs without."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from environments.hybrid.environment import HybridConfig, HybridEnvironment
from schemas.config import load_config
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences


@pytest.fixture
def programs() -> Iterator[Path]:
    """A folder of programs that everybody may run."""
    folder = Path(tempfile.mkdtemp(prefix="flywheel-programs-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def found() -> tuple[bool, str, str]:
    check = HybridEnvironment("hybrid", HybridConfig(kind="hybrid")).probes()[0].check()
    return check.ok, check.detail, check.hint


def test_without_bubblewrap_it_says_what_to_install(
    programs: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    monkeypatch.setenv("PATH", str(programs))
    ok, detail, hint = found()
    assert not ok and "apt install bubblewrap" in hint
    sentence(detail, "`bwrap`")


def test_where_the_kernel_allows_no_namespaces_it_says_what_bubblewrap_said(
    programs: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    program = programs / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    ok, detail, hint = found()
    assert not ok and "user namespaces" in hint
    sentence(detail, "No permissions to create new namespace")


def test_a_command_s_time_must_fit_into_a_step_s() -> None:
    with pytest.raises(UsageError, match="step_timeout_s"):
        load_config(None, ["environments.hybrid.command_s=15"], {})
