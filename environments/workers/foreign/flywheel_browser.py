"""Share code of workers with BrowserGym's actions: our actions as its calls, and the Chromium for Playwright.

It needs the standard library and, where a browser is named, Playwright.
"""

# pyright: reportMissingImports=false
import importlib.util
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flywheel_worker import Refused

WHEEL_PIXELS, DRAG_MOVES, LONG_MS, WAIT_MS = 265, 4, 1000, 1000
"""The values of the project's own browsers: five notches of 53 pixels of the page, four moves."""
REASON = "This cannot be done."
"""The reason of a call for a person that gives none."""
AWAY = {"right": (1, 0), "left": (-1, 0), "down": (0, 1), "up": (0, -1)}
KEYS = {
    "enter": "Enter", "tab": "Tab", "space": "Space", "escape": "Escape", "backspace": "Backspace", "delete": "Delete",
    "insert": "Insert", "home": "Home", "end": "End", "pageup": "PageUp", "pagedown": "PageDown",
    "arrowleft": "ArrowLeft", "arrowup": "ArrowUp", "arrowright": "ArrowRight", "arrowdown": "ArrowDown",
    "shift": "Shift", "ctrl": "Control", "alt": "Alt", "meta": "Meta", **{f"f{n}": f"F{n}" for n in range(1, 13)},
    "shiftright": "ShiftRight", "ctrlright": "ControlRight", "altright": "AltRight", "metaright": "MetaRight",
    "altgraph": "AltGraph", "apps": "ContextMenu", "capslock": "CapsLock", "numlock": "NumLock",
    "scrolllock": "ScrollLock", "pause": "Pause", "printscreen": "PrintScreen", "multiply": "NumpadMultiply",
    "add": "NumpadAdd", "subtract": "NumpadSubtract", "divide": "NumpadDivide", "numpadenter": "NumpadEnter",
    "decimal": ".", **{f"num{n}": str(n) for n in range(10)},
}  # fmt: skip
"""Playwright's key names, by ours; its number pad acts as without NumLock and writes nothing."""
SHIFTED = dict(zip("`1234567890-=[]\\;',./", '~!@#$%^&*()_+{}|:"<>?', strict=True))
"""The character of each key with shift, which Playwright has to be given."""
Calls = list[tuple[str, dict[str, Any]]]
Place = Callable[[str], dict[str, float]]


def calls_of(action: dict[str, Any], width: int, height: int, zoom: float = 1.0) -> Calls:
    """Translates an action to calls of BrowserGym's functions with their arguments; raises Refused for an unsupported
    one.

    Args:
        action: one of ours.
        width: of the screenshot in pixels.
        height: of the screenshot in pixels.
        zoom: pixels of the screenshot to one of the page, which BrowserGym divides a scroll's distance by, too.
    """

    def at(prefix: str = "") -> dict[str, float]:
        if f"{prefix}x" not in action:
            raise Refused(f"BrowserGym's {action['type']} needs a place")
        return place(action[f"{prefix}x"], action[f"{prefix}y"], width, height)

    if action["type"] == "scroll":
        across, down = (one * WHEEL_PIXELS * zoom for one in AWAY[action["direction"]])
        if "x" not in action:
            return [("scroll", {"delta_x": across, "delta_y": down})]
        return [("scroll_at", {**at(), "dx": across, "dy": down})]
    if action["type"] == "drag":
        return _drag(action, width, height)
    make = _CALLS.get(action["type"])
    if make is None:
        raise Refused(f"BrowserGym cannot perform {action['type']}")
    return make(action, at)


def place(x: float, y: float, width: int, height: int) -> dict[str, float]:
    """A point of the screen in pixels of the screenshot."""
    return {"x": round(min(x * width, width - 0.5), 2), "y": round(min(y * height, height - 0.5), 2)}


def chord(keys: str) -> str:
    """Keys with spaces between, by their usual names, as Playwright presses them together; raises Refused for one that
    it has not."""
    named = [key_named(name) for name in keys.split()]
    if "Shift" in named or "ShiftRight" in named:
        named = [SHIFTED.get(name, name.upper()) if len(name) == 1 else name for name in named]
    return "+".join(named)


def key_named(name: str) -> str:
    """Playwright's name of a key; raises Refused for one that it has not."""
    if len(name) == 1:
        return name
    if name not in KEYS:
        raise Refused(f"there is no key {name!r}")
    return KEYS[name]


def use_browser(path: str | None) -> None:
    """Makes Playwright use this Chromium in place of its own; its own if none is named."""
    found = importlib.util.find_spec("playwright")
    if not path or os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or found is None or found.origin is None:
        return
    listed = Path(found.origin).parent / "driver" / "package" / "browsers.json"
    browsers = {one["name"]: one["revision"] for one in json.loads(listed.read_text())["browsers"]}
    folder = Path(tempfile.gettempdir()) / "browsers"
    own = folder / f"chromium-{browsers['chromium']}"
    (own / "chrome-linux").mkdir(parents=True)
    (own / "chrome-linux" / "chrome").symlink_to(path)
    (own / "INSTALLATION_COMPLETE").touch()
    os.environ["PLAYWRIGHT_BROWSERS_PATH"] = str(folder)


def _drag(action: dict[str, Any], width: int, height: int) -> Calls:
    x, y, to_x, to_y = (action[name] for name in ("x", "y", "to_x", "to_y"))
    parts = (number / DRAG_MOVES for number in range(1, DRAG_MOVES + 1))
    moves = [place(x + (to_x - x) * part, y + (to_y - y) * part, width, height) for part in parts]
    pressed, let_go = ("mouse_down", place(x, y, width, height)), ("mouse_up", place(to_x, to_y, width, height))
    return [pressed, *(("mouse_move", move) for move in moves), let_go]


def _pause(action: dict[str, Any], usual_ms: int) -> tuple[str, dict[str, Any]]:
    """A pause of the action's own seconds, else the usual one."""
    seconds = action.get("seconds")
    return "noop", {"wait_ms": usual_ms if seconds is None else seconds * 1000}


def _held(action: dict[str, Any], at: Place) -> dict[str, Any]:
    """The place and the button of a button that goes down or up; raises Refused without a place."""
    return {**at(""), "button": action.get("button", "left")}


def _typed(action: dict[str, Any], at: Place) -> Calls:
    calls: Calls = []
    for number, piece in enumerate(action["content"].split("\n")):
        calls += [("keyboard_press", {"key": "Enter"})] if number else []
        calls += [("keyboard_type", {"text": piece})] if piece else []
    return calls or [("noop", {"wait_ms": 0})]


_CALLS: dict[str, Callable[[dict[str, Any], Place], Calls]] = {
    "click": lambda action, at: [("mouse_click", at(""))],
    "left_double": lambda action, at: [("mouse_dblclick", at(""))],
    "right_single": lambda action, at: [("mouse_click", {**at(""), "button": "right"})],
    "middle_single": lambda action, at: [("mouse_click", {**at(""), "button": "middle"})],
    "long_press": lambda action, at: [("mouse_down", at("")), _pause(action, LONG_MS), ("mouse_up", at(""))],
    "move": lambda action, at: [("mouse_move", at(""))],
    "mouse_down": lambda action, at: [("mouse_down", _held(action, at))],
    "mouse_up": lambda action, at: [("mouse_up", _held(action, at))],
    "type": _typed,
    "hotkey": lambda action, at: [("keyboard_press", {"key": chord(action["key"])})],
    "press": lambda action, at: [("keyboard_down", {"key": key_named(action["key"])})],
    "release": lambda action, at: [("keyboard_up", {"key": key_named(action["key"])})],
    "press_enter": lambda action, at: [("keyboard_press", {"key": "Enter"})],
    "navigate": lambda action, at: [("goto", {"url": action["content"]})],
    "navigate_back": lambda action, at: [("go_back", {})],
    "wait": lambda action, at: [_pause(action, WAIT_MS)],
    "finished": lambda action, at: [("send_msg_to_user", {"text": action["content"]})],
    "call_user": lambda action, at: [("report_infeasible", {"reason": action.get("content") or REASON})],
}
