"""SWE-style bundles: both forms of their lists, local repositories, patches, and what is refused."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from environments.hybrid.repair.bundles import files_at, issue_of, moves_of, patched, place_of, read_bundles
from environments.hybrid.repair.environment import RepairConfig, RepairEnvironment
from environments.hybrid.repair.judge import repaired
from schemas.action import Finished, ReadFile, Terminal, WriteFile
from schemas.failure import UsageError
from tests.fixtures.lamps import LAMPS, git, instance, issue, written
from tests.fixtures.sentences import Sentences

KEY = "environments.repair.bundles"
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed (`apt install git`)")


def stored(folder: Path, *given: Any) -> Path:
    path = folder / "issues.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in given))
    return path


def test_lists_of_tests_may_be_json_texts(tmp_path: Path) -> None:
    given = issue(tmp_path)
    plain = given | {name: json.loads(given[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    (first,) = read_bundles(stored(tmp_path, given), KEY).values()
    (second,) = read_bundles(stored(tmp_path, plain), KEY).values()
    assert first == second and first.failing == ("tests/test_power.py::test_brightest",)
    (tmp_path / "list.json").write_text(json.dumps([plain], indent=1))
    (third,) = read_bundles(tmp_path / "list.json", KEY).values()
    assert third.passing == first.passing and third.where == "list.json, entry 1"


def test_an_issue_has_the_files_of_its_commit_and_the_tests_of_its_patch(tmp_path: Path) -> None:
    (bundle,) = read_bundles(stored(tmp_path, issue(tmp_path)), KEY).values()
    found = issue_of(bundle, str(tmp_path), KEY)
    assert b"test_brightest" not in found.repository.files["tests/test_power.py"]
    assert list(found.repository.tests) == ["tests/test_power.py"]
    assert b"test_brightest" in found.repository.tests["tests/test_power.py"]
    assert found.golden["lamps/power.py"].decode() == LAMPS["lamps/power.py"]
    assert "tests/test_power.py" not in found.golden
    (_, write, _) = moves_of(found)
    assert isinstance(write, WriteFile) and write.content == LAMPS["lamps/power.py"]


def test_a_removed_file_of_the_patch_is_removed(tmp_path: Path) -> None:
    given = issue(tmp_path)
    place = tmp_path / "example__lamps"
    git(place, "rm", "-q", "lamps/switches.py")
    given["patch"] = git(place, "diff", "--cached") + "\n"
    (bundle,) = read_bundles(stored(tmp_path, given), KEY).values()
    assert Terminal(command="rm lamps/switches.py") in moves_of(issue_of(bundle, str(tmp_path), KEY))


NEW = {
    "lamps/power.py": "import tariff\n",
    "tariff.py": "",
    "lamps/rates.json": "{}",
    "lamps/logo.png": b"\x89PNG\x00\xff",
}


def test_the_script_writes_new_files_without_reading_them(tmp_path: Path) -> None:
    given = instance(tmp_path, "lamps", LAMPS, NEW, {"tests/test_new.py": ""}, ["tests/test_new.py::test_a"], [])
    (bundle,) = read_bundles(stored(tmp_path, given), KEY).values()
    found = issue_of(bundle, str(tmp_path), KEY)
    logo, *moves = moves_of(found)
    assert moves == [
        ReadFile(path="lamps/power.py"), WriteFile(path="lamps/power.py", content="import tariff\n"),
        WriteFile(path="lamps/rates.json", content="{}"), WriteFile(path="tariff.py", content=""), Finished(content=""),
    ]  # fmt: skip
    assert isinstance(logo, Terminal)
    subprocess.run(["sh", "-c", logo.command], cwd=tmp_path, check=True)
    assert (tmp_path / "lamps/logo.png").read_bytes() == NEW["lamps/logo.png"]


def test_new_files_of_a_repair_are_modules_of_a_package_or_files_of_the_right_patch(tmp_path: Path) -> None:
    given = instance(tmp_path, "lamps", LAMPS, NEW, {"tests/test_new.py": ""}, ["tests/test_new.py::test_a"], [])
    (bundle,) = read_bundles(stored(tmp_path, given), KEY).values()
    check = issue_of(bundle, str(tmp_path), KEY).check({})
    assert check.added == {"tariff.py", "lamps/rates.json", "lamps/logo.png"}
    others = ("lamps/deep/er/rate.py", "lamps/other.json", "other.py", "conftest.py", "lamps/deep/conftest.py")
    files = {**check.repository.files, **dict.fromkeys((*NEW, *others), b"new")}
    assert repaired(check, files, files.get) == {
        **check.repository.files, **dict.fromkeys((*NEW, "lamps/deep/er/rate.py"), b"new"),
    }  # fmt: skip
    kept = {path: content for path, content in files.items() if path not in {"lamps/switches.py", "pyproject.toml"}}
    assert "lamps/switches.py" not in repaired(check, kept, kept.get), "a removed source file is removed"
    assert "pyproject.toml" in repaired(check, kept, kept.get), "settings stay"


def test_a_repository_is_a_clone_a_git_bundle_or_a_folder(tmp_path: Path) -> None:
    given = issue(tmp_path)
    (bundle,) = read_bundles(stored(tmp_path, given), KEY).values()
    place = place_of(bundle, str(tmp_path), KEY)
    assert place == tmp_path / "example__lamps"
    clone = files_at(place, bundle.base_commit, "lamps", KEY)
    packed = tmp_path / "packed" / "lamps.bundle"
    packed.parent.mkdir()
    git(place, "bundle", "create", "-q", str(packed), "--all")
    assert place_of(bundle, str(packed.parent), KEY) == packed
    assert files_at(packed, bundle.base_commit, "lamps", KEY) == clone
    written(tmp_path / "plain" / "lamps", {path: content.decode() for path, content in clone.items()})
    assert files_at(place_of(bundle, str(tmp_path / "plain"), KEY), "", "lamps", KEY) == clone
    own = given | {"repository": "packed/lamps.bundle"}
    (bundle,) = read_bundles(stored(tmp_path, own), KEY).values()
    assert place_of(bundle, str(tmp_path), KEY) == packed


@pytest.mark.parametrize(
    "name", ["instance_id", "repo", "base_commit", "test_patch", "problem_statement", "FAIL_TO_PASS", "PASS_TO_PASS"]
)
def test_a_missing_field_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    given = issue(tmp_path)
    path = stored(tmp_path, given, {key: value for key, value in given.items() if key != name} | {"extra": 1})
    with pytest.raises(UsageError) as caught:
        read_bundles(path, KEY)
    assert caught.value.problem == f"`{KEY}`: issues.jsonl, line 2 has no field `{name}`."
    assert f"Add `{name}`" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FAIL_TO_PASS", "tests/test_a.py"), ("FAIL_TO_PASS", []), ("PASS_TO_PASS", ["test_b (module.Case)"]),
        ("PASS_TO_PASS", {"a": 1}), ("base_commit", 7), ("instance_id", "a/b"), ("base_commit", "--output=/tmp/x"),
        ("repo", "../lamps"),
        ("repository", "/etc"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(tmp_path: Path, sentence: Sentences, name: str, value: object) -> None:
    with sentence.raises(UsageError, KEY, name):
        read_bundles(stored(tmp_path, issue(tmp_path) | {name: value}), KEY)


def test_a_file_that_holds_no_bundles_is_refused(tmp_path: Path, sentence: Sentences) -> None:
    with sentence.raises(UsageError, KEY, "none.jsonl"):
        read_bundles(tmp_path / "none.jsonl", KEY)
    (tmp_path / "text.jsonl").write_text("no JSON\n")
    with sentence.raises(UsageError, KEY, "text.jsonl"):
        read_bundles(tmp_path / "text.jsonl", KEY)
    given = issue(tmp_path)
    with sentence.raises(UsageError, KEY, "line 2", "example__lamps-1"):
        read_bundles(stored(tmp_path, given, given), KEY)


def test_a_missing_repository_or_commit_and_a_wrong_patch_are_refused(tmp_path: Path, sentence: Sentences) -> None:
    given = issue(tmp_path)
    (bundle,) = read_bundles(stored(tmp_path, given), KEY).values()
    with sentence.raises(UsageError, KEY, "example/lamps"):
        place_of(bundle, str(tmp_path / "nowhere"), KEY)
    (bundle,) = read_bundles(stored(tmp_path, given | {"base_commit": "0" * 40}), KEY).values()
    with sentence.raises(UsageError, KEY, "example__lamps-1", "base_commit"):
        issue_of(bundle, str(tmp_path), KEY)
    (bundle,) = read_bundles(
        stored(tmp_path, given | {"test_patch": given["patch"].replace("lit", "on")}), KEY
    ).values()
    with sentence.raises(UsageError, KEY, "example__lamps-1", "test_patch"):
        issue_of(bundle, str(tmp_path), KEY)


def test_a_patch_cannot_write_outside(tmp_path: Path) -> None:
    patch = "--- /dev/null\n+++ b/../../escape.txt\n@@ -0,0 +1 @@\n+out\n"
    with pytest.raises(UsageError, match="patch does not apply"):
        patched({"a.py": b""}, patch, "patch", KEY)


def test_each_bundle_is_a_task(tmp_path: Path) -> None:
    config = RepairConfig(kind="repair", packages=("toml",), bundles=str(stored(tmp_path, issue(tmp_path))))
    entries = RepairEnvironment("repair", config).entries
    assert list(entries) == ["repair-toml", "repair-example__lamps-1"]
    assert entries["repair-example__lamps-1"].tags == ("repair", "bundle")
