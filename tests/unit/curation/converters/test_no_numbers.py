"""NaN and infinities, which JSON does not have, are null in everything that an export or an import writes."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from common.text import strict_json
from curation.converters.exchanged import About, Exchanged, ExchangedStep, Sampled
from curation.converters.format import FORMATS
from curation.converters.rows import Import, rows_of
from schemas.action import Click
from schemas.table import utc_now
from tests.unit.curation.converters.records import picture, taken, written

HELD = {"reward": math.nan, "deep": [{"far": -math.inf}], "fine": 0.5}
NULLED = {"reward": None, "deep": [{"far": None}], "fine": 0.5}


def strict(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def texts(value: object) -> Iterator[str]:
    """Yield the JSON objects in the cells of a row."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from texts(one)
    elif isinstance(value, str) and value.startswith("{"):
        yield value


def jsons(folder: Path) -> list[str]:
    found = list[str]()
    for file in sorted(folder.rglob("*")):
        if file.suffix == ".jsonl":
            found += file.read_text().splitlines()
        elif file.suffix == ".json":
            found.append(file.read_text())
        elif file.suffix == ".parquet":
            found += [text for row in pq.read_table(file).to_pylist() for text in texts(row)]
    return found


def record(name: str) -> Exchanged:
    sampled = Sampled("x", (1, 2), (math.nan, -math.inf))
    step = ExchangedStep(picture(0), actions=(Click(x=0.5, y=0.5),), extra={"mine": HELD, name: {}}, sampled=sampled)
    return Exchanged("t", "Go.", (step,), True, about=About(lake="l", trajectory_id="t"), extra={"mine": HELD})


@pytest.mark.parametrize("name", [name for name in FORMATS.names])
def test_every_export_is_json(tmp_path: Path, name: str) -> None:
    found = jsons(written(FORMATS.class_of(name)(), [record(name)], tmp_path))
    assert found and any('"fine"' in text for text in found)
    for text in found:
        strict(text)


def test_what_an_import_stores_is_json(tmp_path: Path) -> None:
    value = {"code": "pyautogui.click(x=0.5, y=0.5)", "score": math.inf}
    line = {"task_id": "a", "instruction": "Go.", "traj": [{"image": "0.png", "value": value}], **HELD}
    (tmp_path / "0.png").write_bytes(picture(0).png)
    (tmp_path / "theirs.jsonl").write_text(json.dumps(line))
    (found,) = taken(FORMATS.class_of("agentnet")(), tmp_path / "theirs.jsonl")
    rows = rows_of(found, Import("l", "r", -2, "t", frozenset(), "import:agentnet:0", False, utc_now()))
    assert strict(rows.trajectory.extra or "")["agentnet"] == NULLED
    assert strict(rows.steps[0].extra or "")["agentnet"]["value"] == {"score": None}
    again = written(FORMATS.class_of("agentnet")(), [replace(found, about=About(lake="l"))], tmp_path / "out")
    (back,) = [strict(text) for text in jsons(again)]
    assert {name: back[name] for name in NULLED} == NULLED


def test_other_values_are_written_as_they_are() -> None:
    for value in ({"a": [1, 2.5, "NaN", None, True]}, [], "x", (1, 2)):
        assert strict_json(value, sort_keys=True) == json.dumps(value, sort_keys=True)
    assert strict_json({"a": (math.nan, 1)}) == '{"a": [null, 1]}'
