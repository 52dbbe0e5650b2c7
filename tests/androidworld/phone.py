"""The stand-in's phone: its state in a file that the program `adb` and the environment share."""

import json
from pathlib import Path
from typing import Any

NEW: dict[str, Any] = {
    "state": "device", "booted": "1", "debuggable": "1", "api": "33", "lamps": [False, False, False], "typed": "",
    "keyboards": ["latin"], "keyboard": "latin", "turns": 0, "size": [120, 240], "logical": None, "frame": None,
    "packages": ["org.lamps", "com.pages"], "snapshots": True, "lines": [], "done": [], "gone_after": 0, "pages": 0,
}  # fmt: skip


def read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())


def write(file: Path, state: dict[str, Any]) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(state))
    part.rename(file)


def logical_size(state: dict[str, Any]) -> list[int]:
    """Width and height as the user sees the screen."""
    size = state["logical"] or state["size"]
    return size[::-1] if state["turns"] % 2 else size
