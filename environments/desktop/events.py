"""Translate an action to input events of an X display: pointer moves, buttons and keys down and up."""

from collections.abc import Callable, Mapping
from typing import Any

from environments.keys import key_of, keys_of
from schemas import action as act
from schemas.failure import ActionFailure
from schemas.keyboard import Key

Event = list[Any]
"""`move X Y`, `button NUMBER DOWN`, `key KEYSYM DOWN`, `text CHARACTERS` or `pause SECONDS`."""
LEFT, RIGHT = 1, 3
WHEEL = {"up": 4, "down": 5, "left": 6, "right": 7}
NOTCHES = 5
"""Wheel notches of one scroll, as UI-TARS's own parser performs it."""
DRAG_MOVES = 8
DRAG_PAUSE_S = 0.012
"""Seconds between two moves of a drag: programs start a drag only after several."""
HELD_S = 0.03
"""Seconds for which keys are held together: a window manager that grabs the keyboard for `alt tab` must see alt go
up."""
LONG_S = 1.0
"""Seconds of a long press."""
WAIT_S = 1.0


def keysym_of(key: Key) -> int:
    """The keysym of a key; raises ActionFailure for one that a display lacks."""
    if not key.keysym:
        raise ActionFailure(f"a desktop has no key {key.name!r}")
    return key.keysym


def pixel(x: float, y: float, width: int, height: int) -> tuple[int, int]:
    """The pixel at fractions of the screen."""
    return min(int(x * width), width - 1), min(int(y * height), height - 1)


def events_of(action: act.Action, width: int, height: int) -> list[Event]:
    """An action on a screen of so many pixels; raises ActionFailure for one that a desktop does not have."""
    if (made := _MADE.get(action.type)) is None:
        raise ActionFailure(f"a desktop cannot perform {action.type}")
    return made(action, width, height)


def _clicks(button: int, times: int) -> Callable[[Any, int, int], list[Event]]:
    def made(action: act.Click, width: int, height: int) -> list[Event]:
        once = [["button", button, True], ["button", button, False]]
        return [["move", *pixel(action.x, action.y, width, height)], *once * times]

    return made


def _long_press(action: act.LongPress, width: int, height: int) -> list[Event]:
    moved = ["move", *pixel(action.x, action.y, width, height)]
    return [moved, ["button", LEFT, True], ["pause", LONG_S], ["button", LEFT, False]]


def _scroll(action: act.Scroll, width: int, height: int) -> list[Event]:
    wheel = WHEEL[action.direction]
    turned = [["button", wheel, True], ["button", wheel, False]] * NOTCHES
    return [["move", *pixel(action.x, action.y, width, height)], *turned]


def _drag(action: act.Drag, width: int, height: int) -> list[Event]:
    (x, y), (to_x, to_y) = pixel(action.x, action.y, width, height), pixel(action.to_x, action.to_y, width, height)
    made: list[Event] = [["move", x, y], ["button", LEFT, True], ["pause", DRAG_PAUSE_S]]
    for number in range(1, DRAG_MOVES + 1):
        part = number / DRAG_MOVES
        made += [["move", round(x + (to_x - x) * part), round(y + (to_y - y) * part)], ["pause", DRAG_PAUSE_S]]
    return [*made, ["button", LEFT, False]]


def _type(action: act.Type, width: int, height: int) -> list[Event]:
    return [["text", action.content]]


def _hotkey(action: act.Hotkey, width: int, height: int) -> list[Event]:
    keysyms = [keysym_of(key) for key in keys_of(action.key)]
    held: list[Event] = [["pause", HELD_S]] if len(keysyms) > 1 else []
    return [*(["key", one, True] for one in keysyms), *held, *(["key", one, False] for one in reversed(keysyms))]


def _held(down: bool) -> Callable[[Any, int, int], list[Event]]:
    return lambda action, width, height: [["key", keysym_of(key_of(action.key)), down]]


def _wait(action: act.Wait, width: int, height: int) -> list[Event]:
    return [["pause", WAIT_S]]


_MADE: Mapping[str, Callable[[Any, int, int], list[Event]]] = {
    "click": _clicks(LEFT, 1),
    "left_double": _clicks(LEFT, 2),
    "right_single": _clicks(RIGHT, 1),
    "long_press": _long_press,
    "scroll": _scroll,
    "drag": _drag,
    "type": _type,
    "hotkey": _hotkey,
    "press": _held(True),
    "release": _held(False),
    "wait": _wait,
}
