"""Translate actions to lines of a phone's shell.

Each call of `input` starts a Java process (0.1 to 0.5 s), so both taps of a double tap are in one line. Touches and
screenshots have the same rotation.

Source: `input`'s own usage, Android 13; ADBKeyboard 2.0 (github.com/senzhk/ADBKeyBoard).
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any, Literal

from environments.keys import keys_of
from schemas import action as act
from schemas.failure import ActionFailure

KEYBOARD = "com.android.adbkeyboard/.AdbIME"
"""ADBKeyboard's input method, which types any script."""
SWIPE_MS, DRAG_MS = 500, 1000
"""Milliseconds of a scroll and of a drag; a faster swipe flings a list."""
LONG_PRESS_S = 1.0
"""Seconds of a long press that names none."""
SCROLL_SHARE = 0.4
"""Share of the screen that a scroll moves."""
EDGE_SHARE = 0.1
"""Share of the screen at each edge that a scroll leaves out, because the system's gestures begin there."""
DragBy = Literal["swipe", "draganddrop"]
_BUTTONS = {"press_home": 3, "press_back": 4, "press_enter": 66, "press_menu": 82, "press_recent": 187}
_CHUNK = 80
_KEYS: Mapping[str, int] = {
    "enter": 66, "numpadenter": 160, "tab": 61, "escape": 111, "backspace": 67, "delete": 112, "insert": 124,
    "home": 122, "end": 123, "pageup": 92, "pagedown": 93, "arrowup": 19, "arrowdown": 20, "arrowleft": 21,
    "arrowright": 22, "shift": 59, "shiftright": 60, "ctrl": 113, "ctrlright": 114, "alt": 57, "altright": 58,
    "meta": 117, "metaright": 118, "apps": 82, "space": 62, "printscreen": 120, "volumeup": 24, "volumedown": 25,
    "volumemute": 164, "clear": 28, "browserback": 4, "browserhome": 3, "playpause": 85,
    **{chr(97 + n): 29 + n for n in range(26)}, **{str(n): 7 + n for n in range(10)},
    **{f"f{n}": 130 + n for n in range(1, 13)},
}  # fmt: skip
"""Android's key code of each key, by canonical name."""
_EVENTS: Mapping[str, int] = {"power": 26, "camera": 27}
"""Android's key code of each key event that no keyboard has."""


def line_of(action: act.Action, width: int, height: int, keyboard: bool, drag_by: DragBy = "swipe") -> str:
    """Returns the shell's line that performs an action.

    Args:
        action: any action except `open_app`, `wait`, `finished` and `call_user`.
        width: pixels of the screenshot.
        height: pixels of the screenshot.
        keyboard: whether ADBKeyboard is the phone's keyboard.
        drag_by: the command of a drag.

    Raises:
        ActionFailure: phones cannot perform such an action.
    """
    if action.type in _BUTTONS:
        return _key(_BUTTONS[action.type])
    if isinstance(action, act.Type):
        return " && ".join(_typed(action.content, keyboard)) or ":"
    if isinstance(action, act.Drag):
        ends = *pixel(action.x, action.y, width, height), *pixel(action.to_x, action.to_y, width, height)
        return f"input {drag_by} {_numbers(*ends)} {DRAG_MS}"
    if isinstance(action, act.LeftDouble) and action.x is None:
        raise ActionFailure("a phone has no pointer, and the left_double has no place")
    if (made := _LINES.get(action.type)) is None:
        raise ActionFailure(f"a phone cannot perform {action.type}")
    return made(action, width, height)


def pixel(x: float, y: float, width: int, height: int) -> tuple[int, int]:
    """Returns the pixel at fractions of the screen."""
    return min(int(x * width), width - 1), min(int(y * height), height - 1)


def _numbers(*values: int) -> str:
    return " ".join(map(str, values))


def _key(*codes: int) -> str:
    return f"input keyevent {codes[0]}" if len(codes) == 1 else f"input keycombination {_numbers(*codes)}"


def _tap(action: Any, width: int, height: int) -> str:
    return f"input tap {_numbers(*pixel(action.x, action.y, width, height))}"


def _long_press(action: act.LongPress, width: int, height: int) -> str:
    place = pixel(action.x, action.y, width, height)
    held_ms = round(1000 * (LONG_PRESS_S if action.seconds is None else action.seconds))
    return f"input swipe {_numbers(*place, *place, max(held_ms, 1))}"


def _scroll(action: act.Scroll, width: int, height: int) -> str:
    """Moves a finger against the direction, since `down` shows the content below; without a place, in the middle."""
    x, y = act.point_of(action) or (0.5, 0.5)
    back = action.direction in ("down", "right")
    upright = action.direction in ("up", "down")
    low, high = EDGE_SHARE + (SCROLL_SHARE if back else 0.0), 1 - EDGE_SHARE - (0.0 if back else SCROLL_SHARE)
    start = min(max(y if upright else x, low), high)
    end = round(start - SCROLL_SHARE if back else start + SCROLL_SHARE, 6)
    across = min(max(x if upright else y, EDGE_SHARE), 1 - EDGE_SHARE)
    ends = ((across, start), (across, end)) if upright else ((start, across), (end, across))
    return f"input swipe {_numbers(*(side for place in ends for side in pixel(*place, width, height)), SWIPE_MS)}"


def _hotkey(action: act.Hotkey, width: int, height: int) -> str:
    if action.key in _EVENTS:
        return _key(_EVENTS[action.key])
    keys = keys_of(action.key)
    if missing := [key.name for key in keys if key.name not in _KEYS]:
        raise ActionFailure(f"a phone has no key {missing[0]!r}")
    return _key(*(_KEYS[key.name] for key in keys))


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def _navigate(action: act.Navigate, width: int, height: int) -> str:
    url = action.content if _SCHEME.match(action.content) else f"https://{action.content}"
    return f"am start -a android.intent.action.VIEW -d {quote(url)}"


def _typed(text: str, keyboard: bool) -> Iterator[str]:
    """Yields the commands that type a text: a newline is Enter, and a tab is Tab."""
    for piece in re.findall(r"\r\n|[\r\n\t]|[^\r\n\t]+", text):
        if piece in ("\r\n", "\r", "\n"):
            yield _key(66)
        elif piece == "\t":
            yield _key(61)
        elif keyboard:
            yield f"am broadcast -a ADB_INPUT_B64 --es msg {b64encode(piece.encode()).decode()}"
        elif piece.isascii() and piece.isprintable():
            yield from (f"input text {quote(part.replace(' ', '%s'))}" for part in _parts(piece))
        else:
            raise ActionFailure(
                "`input text` types ASCII only; install ADBKeyboard on the phone for text in other scripts"
            )


def _parts(piece: str) -> Sequence[str]:
    """Splits a text between `%` and `s`, because `input` types `%s` as a space."""
    return re.findall(rf"(?:[^%]|%(?!s)){{1,{_CHUNK}}}|%", piece)


_LINES: Mapping[str, Callable[[Any, int, int], str]] = {
    "click": _tap,
    "left_double": lambda action, *size: f"{_tap(action, *size)}; {_tap(action, *size)}",
    "long_press": _long_press,
    "scroll": _scroll,
    "hotkey": _hotkey,
    "navigate": _navigate,
    "navigate_back": lambda action, *size: _key(4),
}
