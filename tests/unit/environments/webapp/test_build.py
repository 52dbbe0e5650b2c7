"""Building applications from a snapshot, with an npm and a node that stand in for the real ones."""

import os
import subprocess
from pathlib import Path

import pytest

from environments.programs import alone
from environments.webapp.build import BUILDING, build, record_of, sources
from schemas.failure import FlywheelError, UsageError
from tests.fixtures.sentences import Sentences

NPM = '#!/bin/sh\necho "npm $*" >> "$LOG"\n[ -f slow ] && sleep 60\nmkdir -p node_modules/vite/bin\n'
NODE = """#!/bin/sh
[ "$1" = --version ] && { echo v20.0.0; exit 0; }
[ -f broken ] && { echo "error during build:"; echo "it is broken"; exit 1; }
mkdir -p dist && cp page.html dist/index.html
"""


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("npm", NPM), ("node", NODE)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    (tmp_path / "log").touch()
    for name in ("First_mock", "second_app_mock"):
        folder = tmp_path / "theirs" / "websites" / name
        folder.mkdir(parents=True)
        (folder / "package.json").write_text("{}")
        (folder / "page.html").write_text(name)
    (tmp_path / "theirs" / "LICENSE").write_text("Apache-2.0")
    return tmp_path / "theirs"


def installs(snapshot: Path) -> int:
    return len((snapshot.parent / "log").read_text().splitlines())


def test_applications_are_built_with_their_license_and_nothing_else_is_left(snapshot: Path, tmp_path: Path):
    assert list(sources(snapshot)) == ["first", "second-app"]
    answer: list[str] = []
    made = build(snapshot, tmp_path / "out", ["first", "second-app"], answer.append)
    assert [one.name for one in made] == ["first", "second-app"] and "1/2 first" in answer
    assert (tmp_path / "out" / "second-app" / "index.html").read_text() == "second_app_mock"
    assert (tmp_path / "out" / "first" / "LICENSE").read_text() == "Apache-2.0"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"first", "second-app"}
    assert record_of(tmp_path / "out" / "first") == made[0]
    log = (tmp_path / "log").read_text()
    assert "--ignore-scripts" in log and not (snapshot / "websites" / "First_mock" / "node_modules").exists()


def test_what_is_there_is_not_built_again_unless_its_source_changed(snapshot: Path, tmp_path: Path):
    for times in (1, 1):
        build(snapshot, tmp_path / "out", ["first"], lambda line: None)
        assert installs(snapshot) == times
    (snapshot / "websites" / "First_mock" / "page.html").write_text("newer")
    build(snapshot, tmp_path / "out", ["first"], lambda line: None)
    assert installs(snapshot) == 2
    assert (tmp_path / "out" / "first" / "index.html").read_text() == "newer"


def test_one_that_does_not_build_is_named_with_the_reason_and_the_others_are_there(
    snapshot: Path, tmp_path: Path, sentence: Sentences
):
    (snapshot / "websites" / "First_mock" / "broken").touch()
    with sentence.raises(FlywheelError):
        build(snapshot, tmp_path / "out", ["first", "second-app"], lambda line: None)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"second-app"}


def test_while_another_builds_there_nothing_of_its_is_touched(snapshot: Path, tmp_path: Path, sentence: Sentences):
    out = tmp_path / "out"
    (out / f"{BUILDING}first").mkdir(parents=True)
    with (
        alone(out, "cua-gym-hub"),
        sentence.raises(FlywheelError, "cua-gym-hub", os.getpid()),
    ):
        build(snapshot, out, ["first"], lambda line: None)
    assert (out / f"{BUILDING}first").exists() and not installs(snapshot)


def test_a_build_that_is_broken_off_leaves_nothing_and_the_next_begins_anew(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "out"
    (out / f"{BUILDING}killed").mkdir(parents=True)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "communicate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build(snapshot, out, ["first"], lambda line: None)
    assert not list(out.iterdir())
    build(snapshot, out, ["first"], lambda line: None)
    assert [path.name for path in out.iterdir()] == ["first"]


def test_a_folder_that_is_no_checkout_and_an_application_that_is_not_in_it_are_refused(snapshot: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="--from"):
        build(tmp_path / "tools", tmp_path / "out", ["first"], lambda line: None)
    with pytest.raises(UsageError, match=r"--apps.*third.*first, second-app"):
        build(snapshot, tmp_path / "out", ["third"], lambda line: None)
    assert not (tmp_path / "out").exists()
