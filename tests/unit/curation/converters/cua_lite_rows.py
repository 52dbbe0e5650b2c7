"""Rows of cua-lite as this project writes them, and such rows with one flaw each, by name."""

import json
import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from curation.converters.cua_lite.form import CuaLite
from curation.converters.exchanged import About, Exchanged, ExchangedStep, PlaceQuestion
from schemas.action import Action, action_of
from tests.unit.curation.converters.records import picture, written

Row = dict[str, Any]


def _steps(*replies: list[dict[str, Any]] | str) -> tuple[ExchangedStep, ...]:
    found = list[ExchangedStep]()
    for number, reply in enumerate(replies):
        actions: tuple[Action, ...] = () if isinstance(reply, str) else tuple(map(action_of, reply))
        text = reply if isinstance(reply, str) else ""
        frames = tuple(picture(20 + number + at) for at in range(len(actions) - 1))
        found.append(ExchangedStep(picture(number), f"Now {number}.", actions, text, frames=frames))
    return tuple(found)


POINT = {"x": 0.5, "y": 0.25}
OURS: dict[str, Exchanged] = {
    "desktop": Exchanged(
        "desktop",
        "Rename the file.",
        _steps(
            [{"type": "click", **POINT}, {"type": "hotkey", "key": "ctrl a"}, {"type": "type", "content": "b\n"}],
            [{"type": "mouse_down", **POINT}, {"type": "mouse_up", "button": "right"}],
            [{"type": "scroll", **POINT, "direction": "left"}, {"type": "wait"}, {"type": "hotkey", "key": "shift F5"}],
            [{"type": "drag", **POINT, "to_x": 1.0, "to_y": 0.0}],
            "I look at it again.",
            [{"type": "triple_click", **POINT}, {"type": "move", "x": 1.0, "y": 1.0}],
            [{"type": "finished"}],
        ),
        True,
        about=About(reward=1.0),
    ),
    "screen after the end": Exchanged(
        "after", "Press it.", _steps([{"type": "press", "key": "a"}, {"type": "release", "key": "a"}]), None, picture(9)
    ),
    "browser": Exchanged(
        "browser",
        "How many?",
        _steps(
            [{"type": "navigate", "content": "https://a.org"}],
            [{"type": "navigate_back"}, {"type": "right_single", **POINT}],
            [{"type": "terminal", "command": "ls"}],
            [{"type": "finished", "content": "42"}],
        ),
    ),
    "mobile": Exchanged(
        "mobile",
        "Open it.",
        _steps(
            [{"type": "open_app", "app_name": "Notes"}],
            [{"type": "left_double", **POINT}, {"type": "long_press", **POINT, "seconds": 2}],
            [{"type": "scroll", **POINT, "direction": "down"}, {"type": "press_back"}],
            [{"type": "hotkey", "key": "ctrl a"}],
            [{"type": "call_user", "content": "It is locked."}],
        ),
        False,
    ),
    "questions": Exchanged(
        "asked",
        "Save it.",
        _steps([{"type": "click", **POINT}]),
        questions=(PlaceQuestion(0, "Save", 0.5, 0.25), PlaceQuestion(0, "Open", 1.0, 0.0)),
    ),
}


def _calls(row: Row, message: int = 1) -> list[Any]:
    return row["messages"][message]["tool_calls"]


def _items(row: Row) -> list[Any]:
    return _calls(row)[0]["function"]["arguments"]["actions"]


FLAWS: dict[str, tuple[str, Callable[[Row], Any]]] = {
    "unknown metadata": ("desktop 0", lambda row: row["metadata"].update(score=1)),
    "unknown platform": ("desktop 0", lambda row: row["metadata"].update(dims=["watch", "use"])),
    "missing dims": ("desktop 0", lambda row: row["metadata"].pop("dims")),
    "image that is not there": ("desktop 0", lambda row: row["messages"][0]["content"][0].update(index=99)),
    "unknown role": ("desktop 0", lambda row: row["messages"][0].update(role="human")),
    "image of the assistant": (
        "desktop 0", lambda row: row["messages"][1]["content"].append({"type": "image", "index": 0})
    ),
    "unknown action": ("desktop 0", lambda row: _items(row)[0].update(action="fly")),
    "unknown argument": ("desktop 0", lambda row: _items(row)[0].update(pressure=3)),
    "missing argument": ("desktop 0", lambda row: _items(row)[2].pop("text")),
    "fraction as a coordinate": ("desktop 0", lambda row: _items(row)[0].update(coordinate=[0.5, 0.25])),
    "coordinate off the screen": ("desktop 0", lambda row: _items(row)[0].update(coordinate=[500, 1001])),
    "unknown key": ("desktop 0", lambda row: _items(row)[1].update(keys=["ctrl", "hyper"])),
    "capital letter as a key": ("desktop 0", lambda row: _items(row)[1].update(keys=["A"])),
    "no keys": ("desktop 0", lambda row: _items(row)[1].update(keys=[])),
    "call without an id": ("desktop 0", lambda row: _calls(row)[0].pop("id")),
    "id of another call": ("desktop 0", lambda row: row["messages"][2].update(tool_call_id="call_9999")),
    "result without content": ("desktop 0", lambda row: row["messages"][2].update(content=[])),
    "no result": ("desktop 0", lambda row: row["messages"].pop(2)),
    "last text of spaces": ("desktop 0", lambda row: row["messages"][-1]["content"][-1].update(text=" ")),
    "result after the end": ("screen after the end 0", lambda row: row["metadata"]["others"].pop("terminated")),
    "tool that is not declared": ("browser 0", lambda row: row["metadata"].update(extra_tool_schemas=[])),
    "tool of a phone": ("desktop 0", lambda row: _calls(row)[0]["function"].update(name="mobile")),
    "box in place of a point": ("questions 1", lambda row: _calls(row)[0]["function"].update(name="bbox")),
    "point off the screen": (
        "questions 1", lambda row: _calls(row)[0]["function"]["arguments"].update(coordinate=[1, 1001])
    ),
    "point of three numbers": (
        "questions 1", lambda row: _calls(row)[0]["function"]["arguments"].update(coordinate=[1, 2, 3])
    ),
    "point without a coordinate": ("questions 1", lambda row: _calls(row)[0]["function"]["arguments"].clear()),
}  # fmt: skip
"""Changes of one row each, with the row's name."""


def rows() -> dict[str, Row]:
    """All rows by name: those of `OURS`, named by the record and their number, and those with a flaw."""
    found = dict[str, Row]()
    for name, record in OURS.items():
        with tempfile.TemporaryDirectory() as folder:
            written(CuaLite(), [record], Path(folder))
            files = sorted(Path(folder).rglob("*.parquet"), key=lambda one: "grounding" in str(one))
            read = [row for file in files for row in pq.read_table(file).to_pylist()]
        for number, row in enumerate(read):
            texts = {key: json.loads(row[key]) for key in ("messages", "metadata")}
            found[f"{name} {number}"] = {"images": row["images"], **texts}
    for name, (base, change) in FLAWS.items():
        row = deepcopy(found[base])
        change(row)
        found[name] = row
    return found
