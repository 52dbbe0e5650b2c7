"""Guards the flat package names: they are ours alone, and no flow file can shadow another package."""

import importlib.util
import sys
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = (
    "apps",
    "flywheel",
    "flows",
    "tasks",
    "rollout",
    "curation",
    "learning",
    "models",
    "environments",
    "storage",
    "schemas",
    "common",
    "benchmarks",
)


@pytest.mark.parametrize("name", OURS)
def test_each_package_resolves_inside_the_checkout(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    assert Path(spec.origin).resolve() == ROOT / name / "__init__.py"


def test_no_installed_distribution_owns_a_name_of_ours() -> None:
    installed = packages_distributions()
    owners = {name: set(installed.get(name, ())) - {"flywheel"} for name in OURS}
    assert not {name: found for name, found in owners.items() if found}
    for distribution in distributions():
        if distribution.metadata["Name"] != "flywheel":
            tops = {file.parts[0] for file in distribution.files or () if len(file.parts) > 1}
            assert not tops & set(OURS), distribution.metadata["Name"]


def test_no_flow_file_is_named_like_a_package_a_standard_module_or_an_installed_one() -> None:
    flows = {path.stem for path in (ROOT / "flows").glob("*.py")} - {"__init__"}
    assert flows
    installed = set(packages_distributions())
    allowed = {"flywheel"}  # the distribution is named so, no package is
    assert not (flows & (set(OURS) | set(sys.stdlib_module_names) | installed)) - allowed


def test_every_package_but_the_benchmarks_is_in_the_wheel() -> None:
    import tomllib

    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["packages"]) == {*OURS, "configs"} - {"benchmarks"}
