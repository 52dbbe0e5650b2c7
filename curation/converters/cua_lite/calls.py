"""Write actions as cua-lite's tool calls, whose coordinates are thousandths of the screen.

A call of the tool `computer` or `mobile` holds actions in order; other tools, such as `goto`, stand alone and need a
schema in the sample's metadata. Source: cua-lite @2602509, `lite/core/tools/action_space` and `extra_tools.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from schemas.action import (
    Action,
    CallUser,
    Click,
    Drag,
    Finished,
    Hotkey,
    LeftDouble,
    LongPress,
    MiddleSingle,
    MouseDown,
    MouseUp,
    Move,
    Navigate,
    NavigateBack,
    OpenApp,
    Press,
    PressBack,
    PressEnter,
    PressHome,
    PressMenu,
    PressRecent,
    Release,
    RightSingle,
    Scroll,
    Terminal,
    TripleClick,
    Type,
    Wait,
)
from schemas.keyboard import key_named

Platform = Literal["desktop", "browser", "mobile"]
BATCHES: Mapping[str, str] = {"desktop": "computer", "browser": "computer", "mobile": "mobile"}
"""Tool that holds the actions of a platform."""
SCROLL = 5
"""Number of units of a written scroll; this project's scrolls have none."""
WAIT_S = 1.0
"""Seconds of a written wait that has none."""
SIDE = 1000
"""Thousandths of a side of the screen."""
SWIPE = 300
"""Length of the swipe of a written scroll on a phone, in thousandths."""
_KEYS = {
    "escape": "esc", "arrowleft": "left", "arrowup": "up", "arrowright": "right", "arrowdown": "down", "apps": "menu",
    "shiftright": "shift", "ctrlright": "ctrl", "altright": "alt", "altgraph": "alt", "metaright": "meta",
}  # fmt: skip
"""Names of keys in cua-lite, where they differ."""
_NAMED = frozenset(
    (
        *("ctrl", "alt", "shift", "meta", "enter", "tab", "space", "backspace", "delete", "esc", "up", "down", "left"),
        *("right", "home", "end", "pageup", "pagedown", "insert", "capslock", "menu", "printscreen", "clear"),
        *(f"f{number}" for number in range(1, 25)),
    )
)
SYSTEM: Mapping[str, Action] = {
    "Home": PressHome(),
    "Back": PressBack(),
    "Enter": PressEnter(),
    "Menu": PressMenu(),
    "Recent": PressRecent(),
}
ALONE: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "goto": (("url",), ()),
    "back": ((), ()),
    "open_app": (("app_name",), ()),
    "bash": (("command",), ()),
    "response": (("text",), ()),
    "terminate": (("status",), ("reason",)),
    "report_infeasible": (("reason",), ()),
}
"""Tools that stand alone, each with its required and its optional arguments, which are texts."""
Call = tuple[str, dict[str, Any]]
"""Name and arguments of a call."""


def schemas_of(calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Return the schemas of the tools that stand alone, in the form of `metadata.extra_tool_schemas`."""
    return [_schema(name) for name in ALONE if any(name == one for one, _ in calls)]


def _schema(name: str) -> dict[str, Any]:
    required, optional = ALONE[name]
    properties = {one: {"type": "string"} for one in (*required, *optional)}
    parameters = {"type": "object", "properties": properties, "required": [*required]}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


def write_calls(actions: Sequence[Action], platform: Platform) -> list[Call] | None:
    """Return calls for all actions, in order; None if one of them has no call on this platform."""
    calls = list[Call]()
    for action in actions:
        alone = _alone(action)
        if alone is not None:
            calls.append(alone)
            continue
        items = _mobile(action) if platform == "mobile" else _computer(action)
        if items is None:
            return None
        batch = BATCHES[platform]
        if calls and calls[-1][0] == batch:
            calls[-1][1]["actions"] += items
        else:
            calls.append((batch, {"actions": items}))
    return calls


def _alone(action: Action) -> Call | None:
    match action:
        case Navigate(content=url):
            return "goto", {"url": url}
        case NavigateBack():
            return "back", {}
        case OpenApp(app_name=app):
            return "open_app", {"app_name": app}
        case Terminal(command=command):
            return "bash", {"command": command}
        case Finished(content=text):
            return "response", {"text": text}
        case CallUser(content=reason):
            return "terminate", {"status": "failure", **({"reason": reason} if reason else {})}
        case _:
            return None


def _computer(action: Action) -> list[dict[str, Any]] | None:
    match action:
        case Click() | LeftDouble() | TripleClick() | RightSingle() | MiddleSingle():
            return [{"action": "click", **_place(action.x, action.y), **CLICKS[action.type]}]
        case Move():
            return [{"action": "mouse_move", "coordinate": _at(action.x, action.y)}]
        case MouseDown() | MouseUp():
            name = "mouse_down" if isinstance(action, MouseDown) else "mouse_up"
            button = {} if action.button == "left" else {"button": action.button}
            place = _place(action.x, action.y)
            return [*([{"action": "mouse_move", **place}] if place else []), {"action": name, **button}]
        case Drag():
            ends = {"start_coordinate": _at(action.x, action.y), "coordinate": _at(action.to_x, action.to_y)}
            return [{"action": "drag", **ends}]
        case Scroll():
            where = _place(action.x, action.y)
            return [{"action": "scroll", "direction": action.direction, "amount": SCROLL, **where}]
        case Type(content=text):
            entered = text.endswith("\n")
            return [
                {"action": "type", "text": text[:-1] if entered else text, **({"press_enter": True} if entered else {})}
            ]
        case Hotkey(key=key) | Press(key=key) | Release(key=key):
            names = {Hotkey: "key", Press: "key_down", Release: "key_up"}
            keys = _keys(key.split(" "))
            return [{"action": names[type(action)], "keys": keys}] if keys else None
        case Wait():
            return [{"action": "wait", "duration": WAIT_S if action.seconds is None else action.seconds}]
        case _:
            return None


CLICKS: Mapping[str, Mapping[str, Any]] = {
    "click": {},
    "left_double": {"clicks": 2},
    "triple_click": {"clicks": 3},
    "right_single": {"button": "right"},
    "middle_single": {"button": "middle"},
}
"""Arguments of `click` by action."""


def _mobile(action: Action) -> list[dict[str, Any]] | None:
    match action:
        case Click():
            return [{"action": "tap", "coordinate": _at(action.x, action.y)}]
        case LeftDouble(x=float(x), y=float(y)):
            return [{"action": "tap", "coordinate": _at(x, y), "clicks": 2}]
        case LongPress():
            held = {} if action.seconds is None else {"duration": action.seconds}
            return [{"action": "long_press", "coordinate": _at(action.x, action.y), **held}]
        case Drag():
            ends = {"start_coordinate": _at(action.x, action.y), "coordinate": _at(action.to_x, action.to_y)}
            return [{"action": "swipe", **ends}]
        case Scroll():
            x, y = _at(0.5 if action.x is None else action.x, 0.5 if action.y is None else action.y)
            across, down = _SWIPES[action.direction]
            end = [min(SIDE, max(0, x + across * SWIPE)), min(SIDE, max(0, y + down * SWIPE))]
            return [{"action": "swipe", "start_coordinate": [x, y], "coordinate": end}]
        case Type(content=text):
            return [{"action": "type", "text": text}]
        case Wait():
            return [{"action": "wait", "duration": WAIT_S if action.seconds is None else action.seconds}]
        case _:
            button = next((name for name, one in SYSTEM.items() if one == action), None)
            return None if button is None else [{"action": "system_button", "button": button}]


_SWIPES = {"up": (0, 1), "down": (0, -1), "left": (1, 0), "right": (-1, 0)}
"""Direction of the finger for a scroll's direction."""


def _place(x: float | None, y: float | None) -> dict[str, Any]:
    """Return the argument of a place; none for the pointer's."""
    return {} if x is None or y is None else {"coordinate": _at(x, y)}


def _at(x: float, y: float) -> list[int]:
    return [round(x * SIDE), round(y * SIDE)]


def _keys(names: Sequence[str]) -> list[str]:
    """Return keys by their names in cua-lite; empty if one has none there."""
    found = list[str]()
    for name in names:
        try:
            known = key_named(name).name
        except ValueError:
            return []
        if len(known) == 1 and known.isascii() and known.isprintable() and known != " ":
            found += ["shift", known.lower()] if known.isupper() else [known]
        elif _KEYS.get(known, known) in _NAMED:
            found.append(_KEYS.get(known, known))
        else:
            return []
    return found
