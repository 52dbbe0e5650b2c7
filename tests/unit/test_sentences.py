"""The snapshot of the sentences that users read: compared, rewritten on request, and without entries of lost tests."""

import ast
from pathlib import Path

import pytest

from tests.fixtures.sentences import ROOT, SNAPSHOT, read, write

FILE = "checks/test_it.py"
TEST = """
import pytest
from schemas.failure import UsageError

def test_error(sentence, tmp_path):
    with sentence.raises(UsageError, "a.key", hint="--flag"):
        raise UsageError(f"a.key is wrong in {tmp_path}/file by process 17.", "Give --flag.")

@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_lines(sentence, name):
    sentence(f"took 5 s for {name}", PID=17, SECONDS=__import__("re").compile(r"\\\\d+ s"))
    sentence(f"of {len(name)} letters")
    sentence.lines(f"the first\\\\n{name}: the second\\\\nthe third", name)

def test_left_out(sentence):
    pytest.skip(reason="no browser: install it")
"""
ENTRIES = {
    "test_error": "a.key is wrong in PATH/file by process 17.\nGive --flag.",
    "test_lines[one]": "took SECONDS for one",
    "test_lines 2": "of 3 letters",
    "test_lines[three]": "took SECONDS for three",
    "test_lines[three] 2": "of 5 letters",
    "test_lines[three] 3": "three: the second",
    "test_lines[one] 3": "one: the second",
    "test_lines[two]": "took SECONDS for two",
    "test_lines[two] 3": "two: the second",
}


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with three tests, and no entries yet."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\ntestpaths = checks")
    for file in (SNAPSHOT, Path(FILE)):
        pytester.mkdir(str(file.parent))
    (pytester.path / FILE).write_text(TEST.replace("\\\\", "\\"))
    return pytester.path


def run(pytester: pytest.Pytester, *options: str) -> tuple[int, str]:
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "tests.fixtures.sentences", *options)
    return int(done.ret), done.stdout.str()


def test_an_update_stores_the_texts_sorted_and_a_second_run_compares(pytester: pytest.Pytester, project: Path) -> None:
    code, said = run(pytester)
    assert code == 1 and said.count(f"-m pytest {FILE} --update-sentences") >= 3, "no text has an entry yet"
    assert run(pytester, "--update-sentences")[0] == 0
    path = project / SNAPSHOT
    assert read(path) == {FILE: ENTRIES}
    assert path.read_text().startswith('{\n "checks/test_it.py": {\n  "test_error": [\n   "a.key is wrong in PATH/file')
    assert run(pytester)[0] == 0


def test_an_update_by_two_processes_stores_the_texts_of_both(pytester: pytest.Pytester, project: Path) -> None:
    (project / "checks/test_other.py").write_text("def test_other(sentence):\n    sentence('another text')\n")
    assert run(pytester, "--update-sentences", "-p", "xdist", "-n", "2", "--dist", "loadfile")[0] == 0
    assert read(project / SNAPSHOT) == {FILE: ENTRIES, "checks/test_other.py": {"test_other": "another text"}}


def test_an_update_keeps_an_entry_of_all_rows_when_fewer_rows_run(pytester: pytest.Pytester, project: Path) -> None:
    path = project / FILE
    path.write_text(
        "import os, pytest\n@pytest.mark.parametrize('row', 'ab' if 'MORE' in os.environ else 'a')\n"
        "def test_rows(sentence, row):\n    sentence('equal')\n"
    )
    with pytest.MonkeyPatch.context() as more:
        more.setenv("MORE", "1")
        assert run(pytester, "--update-sentences")[0] == 0
    assert run(pytester, "--update-sentences")[0] == 0
    assert read(project / SNAPSHOT) == {FILE: {"test_rows": "equal"}}


def test_another_text_fails_with_the_difference(pytester: pytest.Pytester, project: Path) -> None:
    write(
        project / SNAPSHOT, {FILE: ENTRIES | {"test_error": "a.key is bad in PATH/file by process 17.\nGive --flag."}}
    )
    code, said = run(pytester, FILE)
    assert code == 1 and "3 passed, 1 skipped" in said
    assert "-a.key is bad in PATH/file" in said and "+a.key is wrong in PATH/file" in said


@pytest.mark.parametrize(
    ("old", "new"), [('"a.key", ', '"b.key", '), ('hint="--flag"', 'hint="a.key"'), ("UsageError, ", "LookupError, ")]
)
def test_type_key_and_hint_are_checked_whatever_the_entry_holds(
    pytester: pytest.Pytester, project: Path, old: str, new: str
) -> None:
    write(project / SNAPSHOT, {FILE: ENTRIES})
    (project / FILE).write_text((project / FILE).read_text().replace(old, new))
    for options in ((), ("--update-sentences",)):
        assert run(pytester, f"{FILE}::test_error", *options)[0] == 1
    assert read(project / SNAPSHOT) == {FILE: ENTRIES}


def test_an_update_of_a_whole_file_drops_what_no_test_used_but_not_what_was_left_out(
    pytester: pytest.Pytester, project: Path
) -> None:
    path, kept = project / SNAPSHOT, {"test_left_out": "a text", "test_left_out 2": "a second text"}
    stored = {
        FILE: ENTRIES | kept | {"test_gone": "a text", "test_error 2": "a text"},
        "tests/test_gone.py": {"t": "t"},
    }
    write(path, stored)
    assert run(pytester, "--update-sentences", "-k", "test_error")[0] == 0
    assert read(path) == {FILE: stored[FILE]}, "a part of a file drops nothing of it; a file that is gone is dropped"
    assert run(pytester, "--update-sentences")[0] == 0
    assert read(path) == {FILE: ENTRIES | kept}


def test_every_entry_is_of_a_test() -> None:
    gone = []
    for file, entries in read(ROOT / SNAPSHOT).items():
        tree = ast.parse((ROOT / file).read_text())
        tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        gone += [f"{file}: {name}" for name in entries if name.split("[")[0].split(" ")[0] not in tests]
    assert not gone
