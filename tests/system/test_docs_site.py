"""The documents as a site: built without a warning, so without a dead link, and without a word to anybody else."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    words = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        str(ROOT / "docs"),
        str(tmp_path),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert {one.stem for one in (ROOT / "docs").glob("*.md")} <= {page.stem for page in pages}
    for page in pages:
        loaded = re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"((?:https?:)?//[^\"]*)", page.read_text())
        assert not loaded, f"{page.name} loads {loaded[0]}"
