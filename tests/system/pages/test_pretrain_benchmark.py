"""`benchmarks.pretrain` on a folder of HTML files, in Chromium, next to RapidOCR."""

import json
from pathlib import Path

import pytest

from benchmarks.pretrain import main as measure
from models.tiny.build import build_tiny
from schemas.config.policy import PolicyConfig
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences

pytestmark = pytest.mark.usefixtures("real_browser")
PAGE = """<!doctype html><script src="https://example.com/a.js"></script><style>button { font: 20px sans-serif }</style>
<button>Proceed</button><br><button>Cancel</button><p>Cancel</p>"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("base") / "base"
    sizes = {"vision_hidden": 16, "vision_layers": 1, "patch": 4, "merge": 4, "window": 32}
    build_tiny(PolicyConfig(hidden=64, layers=2, **sizes), (), 0, out, words=0)
    return out


def test_names_that_are_once_on_a_page_are_asked_of_the_base_and_of_the_peer(base: Path, tmp_path: Path) -> None:
    (demos := tmp_path / "demos").mkdir()
    (demos / "page.html").write_text(PAGE)
    (demos / "empty.html").write_text("<!doctype html>")
    out = tmp_path / "found.json"
    assert measure(["--base", str(base), "--html", str(demos), "--json", str(out)]) == 1  # an untrained base
    whole = [row for row in json.loads(out.read_text())["rows"] if row["text"] == "all"]
    assert [(row["screen"], row["names"]) for row in whole] == [("160x210", 1), ("640x480", 2), ("1280x800", 1)]
    for row in whole:
        assert (row["RapidOCR points"], row["RapidOCR errors"]) == (1.0, 0.0)
        assert row["random element"] == 1 / 3 and row["character errors"] > 0.5


def test_a_folder_without_pages_and_no_source_at_all_are_refused(
    base: Path, tmp_path: Path, sentence: Sentences
) -> None:
    with sentence.raises(UsageError):
        measure(["--base", str(base)])
    with pytest.raises(UsageError, match="no HTML file that opens"):
        measure(["--base", str(base), "--html", str(tmp_path)])
