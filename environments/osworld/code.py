"""Translate an action to a line of Python with pyautogui, which OSWorld's machines run.

The line only has parts of typed actions: numbers, text as a Python literal, and keys of a table. No code of a model is
run. pyautogui silently drops characters without a key, and types `>` for `<`, so such text is pasted from the
clipboard.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from environments.keys import key_of, keys_of
from schemas import action as act
from schemas.failure import ActionFailure
from schemas.keyboard import Key

BEFORE = "import pyautogui; import time; pyautogui.FAILSAFE = False; pyautogui.PAUSE = 0.02; "
NOTCHES = 5
"""Wheel notches of one scroll, as in UI-TARS's parser."""
DRAG_S, LONG_S = 1.0, 1.0
CLICKS_S = 0.05
"""Seconds between the clicks of a double or triple click, since openbox loses some clicks that follow at once."""
MOVE_S = 0.2
"""Seconds of a move of the pointer, so that it has places between, as a drag needs."""
_TURNED = {"down": ("scroll", -1), "up": ("scroll", 1), "left": ("hscroll", -1), "right": ("hscroll", 1)}


def code_of(action: act.Action, width: int, height: int, paste: str = "ctrl v") -> str:
    """Returns the line for an action on a screen of this size.

    Args:
        action: not `wait`, `finished` or `call_user`, which do not reach the machine.
        width: width of the screen in pixels.
        height: height of the screen in pixels.
        paste: the keys that paste from the clipboard, separated by single spaces.

    Raises:
        ActionFailure: a machine of OSWorld does not have the action or a key.
    """
    if action.type == "type":
        return BEFORE + "; ".join(_typed(action, paste))
    if (made := _MADE.get(action.type)) is None:
        raise ActionFailure(f"a machine of OSWorld cannot perform {action.type}")
    return BEFORE + made(action, width, height)


def names_of(keys: Iterable[Key]) -> list[str]:
    """Returns pyautogui's names of keys; raises ActionFailure for a key that it lacks."""
    names: list[str] = []
    for key in keys:
        if not key.pyautogui:
            raise ActionFailure(f"a machine of OSWorld has no key {key.name!r}")
        names += ("shift", ",") if key.name == "<" else (key.pyautogui,)  # pyautogui presses `>` for `<`
    return names


def _at(x: float, y: float, width: int, height: int) -> str:
    return f"{min(int(x * width), width - 1)}, {min(int(y * height), height - 1)}"


def _pointed(call: str) -> Callable[[Any, int, int], str]:
    """Makes a function that writes a call with the point as its first argument `@`, or without a point."""

    def made(action: act.Action, width: int, height: int) -> str:
        point = act.point_of(action)
        return call.replace("@", _at(*point, width, height)) if point else call.replace("@, ", "")

    return made


def _long_press(action: act.LongPress, width: int, height: int) -> str:
    at, held_s = _at(action.x, action.y, width, height), LONG_S if action.seconds is None else action.seconds
    return f"pyautogui.moveTo({at}); pyautogui.mouseDown(); time.sleep({held_s}); pyautogui.mouseUp()"


def _button(call: str) -> Callable[[Any, int, int], str]:
    """Makes a function that writes a call for a button, at a place or at the pointer."""

    def made(action: act.MouseDown | act.MouseUp, width: int, height: int) -> str:
        point = act.point_of(action)
        moved = f"pyautogui.moveTo({_at(*point, width, height)}, duration={MOVE_S}); " if point else ""
        return f"{moved}pyautogui.{call}(button={action.button!r})"

    return made


def _scroll(action: act.Scroll, width: int, height: int) -> str:
    name, sign = _TURNED[action.direction]
    point = act.point_of(action)
    moved = f"pyautogui.moveTo({_at(*point, width, height)}); " if point else ""
    return f"{moved}pyautogui.{name}({sign * NOTCHES})"


def _drag(action: act.Drag, width: int, height: int) -> str:
    at, to = _at(action.x, action.y, width, height), _at(action.to_x, action.to_y, width, height)
    return f"pyautogui.moveTo({at}); pyautogui.dragTo({to}, duration={DRAG_S}, button='left')"


def _hotkey(keys: str) -> str:
    return f"pyautogui.hotkey({', '.join(map(repr, names_of(keys_of(keys))))})"


def _held(call: str, key: str) -> str:
    return "; ".join(f"pyautogui.{call}({name!r})" for name in names_of([key_of(key)]))


def _typed(action: act.Type, paste: str) -> Iterator[str]:
    """Yields the calls that type a text: line ends and tabs become keys, and the text between them is typed, or pasted
    if pyautogui cannot type a character."""
    for key, run in groupby(action.content, lambda character: character in "\n\r\t"):
        text = "".join(run)
        if key:
            yield from (f"pyautogui.press({'tab' if one == chr(9) else 'enter'!r})" for one in text)
        elif all(one.isascii() and one.isprintable() and one != "<" for one in text):
            yield f"pyautogui.write({text!r}, interval=0.01)"
        else:
            yield _PASTED.format(text=repr(text), paste=_hotkey(paste))


_PASTED = (
    "import subprocess; subprocess.run(['xclip', '-selection', 'clipboard'], input={text}.encode(), "
    "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True); "
    "any(subprocess.run(['xclip', '-selection', 'clipboard', '-o'], capture_output=True).stdout == {text}.encode() "
    "or time.sleep(0.05) for _ in range(40)); {paste}; time.sleep(0.3)"
)
"""Code that pastes a text. xclip goes into the background before it owns the clipboard, so the line polls the
clipboard. It then waits, so that the program can fetch the text before the clipboard changes."""
_MADE: Mapping[str, Callable[[Any, int, int], str]] = {
    "click": _pointed("pyautogui.click(@, button='left')"),
    "left_double": _pointed(f"pyautogui.doubleClick(@, interval={CLICKS_S})"),
    "right_single": _pointed("pyautogui.click(@, button='right')"),
    "triple_click": _pointed(f"pyautogui.tripleClick(@, interval={CLICKS_S})"),
    "middle_single": _pointed("pyautogui.click(@, button='middle')"),
    "long_press": _long_press,
    "move": _pointed(f"pyautogui.moveTo(@, duration={MOVE_S})"),
    "mouse_down": _button("mouseDown"),
    "mouse_up": _button("mouseUp"),
    "scroll": _scroll,
    "drag": _drag,
    "hotkey": lambda action, width, height: _hotkey(action.key),
    "press": lambda action, width, height: _held("keyDown", action.key),
    "release": lambda action, width, height: _held("keyUp", action.key),
}
