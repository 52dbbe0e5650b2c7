"""Repositories: installed packages, folders and archives, and what is refused."""

import io
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

from environments.hybrid.repair.environment import PACKAGES, RepairConfig, RepairEnvironment
from environments.hybrid.repair.sources import at, installed, is_test, protected
from environments.registry import environments_of
from schemas.config import load_config
from schemas.failure import FlywheelError, UsageError
from tests.fixtures.sentences import Sentences

KEY = "environments.repair.sources"


def written(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


PROJECT = {
    "src/lamp/__init__.py": "",
    "src/lamp/bulb/__init__.py": "",
    "src/lamp/bulb/watt.py": "def watt():\n    return 1\n",
    "src/lamp/__main__.py": "",
    "src/lamp/loose/no_package.py": "",
    "tests/test_watt.py": "",
    "conftest.py": "",
    "setup.py": "",
    ".git/config": "secret",
    "build/lamp.py": "",
}


def test_a_folder_s_modules_and_tests_are_found(tmp_path: Path) -> None:
    found = at(written(tmp_path / "lamp", PROJECT), KEY)
    assert (found.name, found.roots, found.tops) == ("lamp", ("src",), {"lamp"})
    assert found.modules == ("lamp", "lamp.bulb", "lamp.bulb.watt")
    assert set(found.tests) == {"tests/test_watt.py", "conftest.py"}
    assert not any(path.startswith((".git", "build")) for path in found.files)


def test_an_archive_is_read_without_its_only_folder(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "lamp-1.0.tar.gz", "w:gz") as archive:
        for path, text in PROJECT.items():
            about = tarfile.TarInfo(f"lamp-1.0/{path}")
            about.size = len(text)
            archive.addfile(about, io.BytesIO(text.encode()))
    found = at(tmp_path / "lamp-1.0.tar.gz", KEY)
    assert found.name == "lamp-1.0"
    assert found.modules == ("lamp", "lamp.bulb", "lamp.bulb.watt")


def test_an_installed_package_has_no_tests_and_no_metadata() -> None:
    found = installed("semver", KEY)
    assert "semver.version" in found.modules and found.origin.startswith("semver ")
    assert not any("dist-info" in path or path.endswith(".pyc") for path in found.files)
    assert installed("semver", KEY).digest == found.digest != installed("toml", KEY).digest


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("tests/data.json", True), ("a/test_b.py", True), ("a/b_test.py", True), ("a/conftest.py", True),
        ("a/testing/b.py", True), ("a/testable.py", False), ("a/latest.py", False),
    ],
)  # fmt: skip
def test_tests_are_known_by_their_names(path: str, test: bool) -> None:
    assert is_test(path) is test


@pytest.mark.parametrize("name", ["pytest.toml", ".pytest.toml", "pytest.ini", "a/conftest.py", "a/b.pth"])
def test_settings_of_pytest_are_never_taken_from_a_policy(name: str) -> None:
    assert protected(name) and not protected("pytest_toml.py")


def test_what_is_no_package_is_refused_with_the_key(tmp_path: Path, sentence: Sentences) -> None:
    with sentence.raises(UsageError, KEY, "none"):
        at(tmp_path / "none", KEY)
    (tmp_path / "empty").mkdir()
    with sentence.raises(UsageError, KEY, "empty"):
        at(tmp_path / "empty", KEY)
    (tmp_path / "broken.zip").write_bytes(b"no archive")
    with sentence.raises(FlywheelError, KEY, "broken.zip"):
        at(tmp_path / "broken.zip", KEY)


def test_a_package_that_is_missing_or_compiled_is_refused(sentence: Sentences) -> None:
    with sentence.raises(UsageError, "environments.repair.packages", "no-such-package"):
        installed("no-such-package", "environments.repair.packages")
    with pytest.raises(UsageError, match=r"numpy is no pure Python package: it has numpy.*\.so"):
        installed("numpy", "environments.repair.packages")


def test_two_repositories_have_different_names(tmp_path: Path, sentence: Sentences) -> None:
    config = RepairConfig(kind="repair", sources=(str(tmp_path / "a" / "lamp"), str(tmp_path / "b" / "lamp")))
    with sentence.raises(UsageError, "environments.repair.sources", "lamp"):
        list(RepairEnvironment("repair", config).entries)


def test_the_default_packages_are_tasks_of_the_catalog() -> None:
    (environment,) = environments_of(load_config(None, ['environments={"repair": {}}', "suite.tasks=[]"], {}))
    assert list(environment.entries) == [f"repair-{name}" for name in PACKAGES]
    assert len(PACKAGES) >= 10
    for name in PACKAGES:
        assert installed(name, "environments.repair.packages").modules


def test_the_start_of_a_run_reads_the_repositories_and_runs_nothing(tmp_path: Path, sentence: Sentences) -> None:
    environment = RepairEnvironment("repair", RepairConfig(kind="repair", packages=("toml", "semver")))
    probes = {one.name: one for one in environment.probes()}
    assert probes["repositories"].examine() == "2 repositories"
    assert probes["repositories"].required and not probes["hidden tests"].required
    assert environment.entries["repair-toml"].lineage == f"toml {metadata.version('toml')}"
    with sentence.raises(UsageError, "environments.repair.libraries", "nowhere"):
        wrong = RepairConfig(kind="repair", packages=("toml",), libraries=str(tmp_path / "nowhere"))
        next(one for one in RepairEnvironment("repair", wrong).probes() if one.name == "repositories").examine()


def test_the_tests_time_must_fit_into_a_step_s() -> None:
    with pytest.raises(UsageError, match="step_timeout_s"):
        load_config(None, ["environments.repair.tests_s=15"], {})
