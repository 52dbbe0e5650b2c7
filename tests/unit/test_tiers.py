"""The tiers that `make test` runs, and the table of skipped tests at its end."""

import re
from pathlib import Path

import pytest

from tests.tiers import NO_BROWSER, lacks, missing_of

ROOT = Path(__file__).parents[2]


def test_the_folders_of_the_pure_tier_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (folders,) = re.findall(r"^PURE = \$\(addprefix tests/unit/, (.*)\)$", makefile, re.MULTILINE)
    assert folders and all((ROOT / "tests" / "unit" / name).is_dir() for name in folders.split())


@pytest.mark.parametrize(("slow", "outcome"), [("0", {"skipped": 1, "passed": 1}), ("1", {"passed": 2})])
def test_slow_tests_are_left_out_only_where_the_makefile_says_so(
    slow: str, outcome: dict[str, int], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers, hook = (ROOT / "tests" / name for name in ("tiers.py", "conftest.py"))
    monkeypatch.setenv("FLYWHEEL_SLOW", slow)
    monkeypatch.delenv("FLYWHEEL_NIGHTLY", raising=False)
    text = (
        hook.read_text().replace("from tests.", "from ").replace('pytest_plugins = ["pytester", "tests.fixtures.', "#")
    )
    command = (ROOT / "tests" / "command.py").read_text()
    pytester.makepyfile(tiers=tiers.read_text(), command=command, conftest=text)
    pytester.makeini("[pytest]\nmarkers =\n    slow\n    nightly")
    pytester.makepyfile(test_it="import pytest\n@pytest.mark.slow\ndef test_a(): ...\ndef test_b(): ...")
    pytester.runpytest_subprocess().assert_outcomes(**outcome)


def test_ci_runs_the_slow_tests_too() -> None:
    assert re.findall(r"^make (.+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE) == ["test", "test-slow"]


def test_a_reason_is_split_into_the_missing_part_and_the_command_that_brings_it() -> None:
    assert missing_of(lacks("no S3 server", "pip install: it")) == ("no S3 server", "pip install: it")
    assert missing_of(NO_BROWSER)[1].startswith("apt-get install")
    with pytest.raises(pytest.skip.Exception) as skipped:
        pytest.importorskip("no_such_package")
    assert missing_of(str(skipped.value)) == ("no package 'no_such_package'", "make setup")


def test_every_reason_in_the_tests_names_a_command() -> None:
    """A `skip` or `skipif` with a text of its own has no command in the table."""
    bare = re.compile(r"pytest\.skip\(\s*f?[\"']|skipif\([^)]*reason=f?[\"']")
    found = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py") if bare.search(path.read_text())]
    assert [name for name in found if not name.endswith(("test_tiers.py", "benchmarks/test_gpu.py"))] == []
