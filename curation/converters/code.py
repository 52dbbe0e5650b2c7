"""Reads and writes actions as Python calls: pyautogui's (AgentNet), or ScaleCUA's, which are the same without a module.

Code is parsed, never run. This project's scrolls have a direction and no amount. So the written amount is `SCROLL`, and
only the sign of an amount is read. A record's own code is kept with the action. An action without a call in the format
is written as `flywheel.NAME(...)`, which the format's readers refuse instead of misreading it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from curation.converters.exchanged import OWN
from models.families.code.arguments import written_seconds
from models.families.code.calls import NoAction
from models.families.code.program import OutOfScreen, Point, ToFraction, play
from schemas.action import Action, Hotkey, Type
from schemas.keyboard import pyautogui_name, pyautogui_names

SCROLL = 5
"""Number of wheel clicks of a written scroll."""
DIGITS = 4
"""Decimals of a coordinate, as in AgentNet and ScaleCUA."""
Style = Literal["agentnet", "scalecua"]
PLAIN = {
    "press_home": "navigate_home",
    "press_back": "navigate_back",
    "navigate_back": "go_backward",
}
"""Actions without a field, with ScaleCUA's calls for them."""


def read_code(code: str, fraction: ToFraction, pointer: Point | None = None) -> tuple[Action, Point | None]:
    """Parse code into an action, and return it with the pointer's place after it.

    Args:
        code: one call, or a move of the pointer and one call.
        fraction: converts a point in the code's unit to fractions.
        pointer: the pointer's place before, for calls without a point.

    Raises:
        NoAction: the code has no call, its calls form no single action, or an argument is invalid.
        OutOfScreen: a point is outside of the screen.
    """
    played = play(code, fraction, pointer, own=OWN)
    if played.problem:
        raise OutOfScreen(played.problem) if played.outside else NoAction(played.problem)
    actions = _submitted(played.actions)
    if len(actions) != 1:
        raise NoAction(f"no single action in {code[:80]!r}")
    return actions[0], played.pointer


def _submitted(actions: Sequence[Action]) -> Sequence[Action]:
    """Join a text and a following Enter into one action, whose text ends the line."""
    match actions:
        case [Type() as text, Hotkey(key="enter" | "return")]:
            return [Type(content=f"{text.content}\n")]
        case _:
            return actions


def pointer_after(code: str, fraction: ToFraction, pointer: Point | None) -> Point | None:
    """Return the pointer's place after code that forms no single action, such as several presses of a key.

    It is None if unknown, so that no later code becomes an action at a place that the pointer has left.

    Args:
        code, fraction, pointer: as in `read_code`.
    """
    return play(code, fraction, pointer, own=OWN).pointer


def write_code(action: Action, style: Style) -> str:
    """Return the code of an action, with coordinates in fractions."""
    fields = action.model_dump(exclude={"type"})
    rounded = {name: round(value, DIGITS) if isinstance(value, float) else value for name, value in fields.items()}
    written = (_agentnet if style == "agentnet" else _scalecua)(action.type, rounded)
    return written or _call(f"{OWN}.{action.type}", **rounded)


def _call(name: str, /, *given: object, **named: object) -> str:
    written = [repr(one) for one in given] + [f"{key}={value!r}" for key, value in named.items()]
    return f"{name}({', '.join(written)})"


def _agentnet(kind: str, of: Mapping[str, Any]) -> str | None:
    """Return pyautogui's call, or AgentNet's call of module `computer`; None if there is none."""
    if kind == "scroll":
        down = of["direction"] in ("down", "left")
        name = "hscroll" if of["direction"] in ("left", "right") else "scroll"
        wheel = _call(f"pyautogui.{name}", -SCROLL if down else SCROLL)
        return f"{_call('pyautogui.moveTo', x=of['x'], y=of['y'])}\n{wheel}" if "x" in of else wheel
    if kind == "wait":
        return f"pyautogui.sleep({written_seconds(of['seconds'], 0)})" if of else "computer.wait()"
    if kind in ("finished", "call_user"):
        return _terminate("computer.", kind, of.get("content", ""))
    if kind == "triple_click":
        return _call("computer.tripleClick", **of)
    if kind in ("mouse_down", "mouse_up"):
        return _call("pyautogui.mouseDown" if kind == "mouse_down" else "pyautogui.mouseUp", **of)
    return _shared(kind, of, "pyautogui.")


def _scalecua(kind: str, of: Mapping[str, Any]) -> str | None:
    if kind == "scroll" and of["direction"] in ("up", "down"):
        place = {axis: of[axis] for axis in "xy" if axis in of}
        return _call("scroll", clicks=-SCROLL if of["direction"] == "down" else SCROLL, **place)
    if kind == "finished" or (kind == "call_user" and of):
        return _terminate("", kind, of["content"])
    if kind == "call_user":
        return _call("call_user")
    if kind == "triple_click":
        return _call("click", **of, clicks=3)
    if kind in ("long_press", "wait"):
        named = {"seconds": "duration"} if kind == "long_press" else {}
        held = {name: written_seconds(value, 0) if name == "seconds" else value for name, value in of.items()}
        return _call(kind, **{named.get(name, name): value for name, value in held.items()})
    if kind in PLAIN:
        return _call(PLAIN[kind])
    if kind == "open_app":
        return _call("open_app", **of)
    if kind == "navigate":
        return _call("open_url", url=of["content"])
    return _shared(kind, of, "")


def _shared(kind: str, of: Mapping[str, Any], module: str) -> str | None:
    """Return a call that both styles have, with or without a module."""
    names = {"click": "click", "left_double": "doubleClick", "right_single": "rightClick", "move": "moveTo"}
    if kind in names:
        return _call(module + names[kind], **of)
    if kind == "middle_single":
        return _call(f"{module}click", **of, button="middle")
    if kind == "drag":
        end = _call(f"{module}dragTo", x=of["to_x"], y=of["to_y"], button="left")
        return f"{_call(f'{module}moveTo', x=of['x'], y=of['y'])}\n{end}"
    if kind == "type":
        return _call(f"{module}write", message=of["content"])
    if kind == "hotkey":
        keys = pyautogui_names(of["key"])
        return _call(f"{module}hotkey", *keys) if len(keys) > 1 else _call(f"{module}press", keys=keys[0])
    if kind in ("press", "release"):
        return _call(module + ("keyDown" if kind == "press" else "keyUp"), key=pyautogui_name(of["key"]))
    return None


def stated_outcome(action: Action | None, code: str) -> bool | None:
    """Return the outcome that a record's last step states by `terminate`; None if it states none."""
    if action is None or "terminate" not in code:
        return None
    return {"finished": True, "call_user": False}.get(action.type)


def _terminate(module: str, kind: str, content: str) -> str:
    status = "success" if kind == "finished" else "failure"
    return _call(f"{module}terminate", status=status, **({"info": content} if content else {}))
