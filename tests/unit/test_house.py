"""How the house is kept, where no tool of `make check` looks."""

import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 20
"""Modules that somebody can take in at a glance."""


def test_no_folder_has_more_than_twenty_modules():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    rooms = [*wheel["packages"], "benchmarks", "tests", "scripts"]
    modules = [path for room in rooms for path in (ROOT / room).rglob("*.py") if path.name != "__init__.py"]
    full = {str(folder.relative_to(ROOT)): n for folder, n in Counter(m.parent for m in modules).items() if n > MOST}
    assert modules and not full, f"give some of these a folder of their own: {full}"
