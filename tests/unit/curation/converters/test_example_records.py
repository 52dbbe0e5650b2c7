"""Every example record of the documents is read by its format, as one trajectory."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.picture import rgb_of
from curation.converters.format import FORMATS
from curation.video import write_video
from schemas.action import Click
from tests.unit.curation.converters.records import picture, taken

DOCS = Path(__file__).parents[4] / "docs"
PAGES = ("import-records.md", "video.md")
SECTIONS = {part.partition("\n")[0]: part for page in PAGES for part in (DOCS / page).read_text().split("\n## ")[1:]}
SAME = {"cua-lite-hub": "cua-lite"}
"""Formats whose records are those of another."""


def test_every_format_has_an_example() -> None:
    assert {*SECTIONS} >= {*FORMATS.names} - {*SAME}


@pytest.mark.parametrize("name", FORMATS.names)
def test_an_example_is_read_as_it_is_documented(name: str, tmp_path: Path) -> None:
    section = SECTIONS[SAME.get(name, name)]
    for number in (1, 2):
        (tmp_path / f"{number}.png").write_bytes(picture(number, 160, 120).png)
    if name == "recording":
        shown = [(number - 1.0, rgb_of(picture(number, 160, 120).png)) for number in (1, 2)]
        write_video(tmp_path / "1.mp4", shown, 2.0)
    blocks = re.findall(r"^`(\S+?)`[^\n]*:\n```json\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert blocks
    for file, text in blocks:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(json.loads(text)), path)
        else:
            path.write_text(text)
    unit = re.search(r"--unit (\w+)", section)
    (record,) = taken(FORMATS.class_of(name)(), tmp_path, unit=unit and unit[1])
    assert record.instruction == "Open the settings."
    (action,) = record.steps[0].actions
    assert isinstance(action, Click) and (action.x, action.y) == (0.5, 0.25)
    assert all(step.actions for step in record.steps)
    known = ("agentnet", "scalecua", "lerobot", "recording")
    assert record.success is (True if name in known else record.success)
