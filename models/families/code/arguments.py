"""Reads the arguments of a model's call: which arguments an action expresses, and which ones make it another action.

An argument for which an action has no field is reported as unused. An argument that makes the call another action is
never dropped: a button, a number of clicks or presses, keys that are held. If this project has such an action (a click
of the right button), the call becomes that action. Otherwise the call has no action, and the reason names the argument.
Every family and every import of calls uses these rules.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from common.text import counted
from models.families.code.calls import MAX_CALLS, is_unset, names_no_key
from models.families.code.program import BUTTONS, CLICKS, means_success
from schemas.action import (
    MAX_HOLD_S,
    MAX_WAIT_S,
    Action,
    Button,
    Click,
    Drag,
    Hotkey,
    LeftDouble,
    LongPress,
    MiddleSingle,
    MouseDown,
    MouseUp,
    Move,
    RightSingle,
    TripleClick,
    Type,
    Wait,
    point_of,
)
from schemas.keyboard import is_key, is_modifier, names_of, together, usual

ENTERS = ("press_enter", "enter")
"""Arguments of typing that press enter after it."""
CLEARS = ("delete_existing_text", "clear", "clear_before_typing", "override")
"""Arguments of typing that empty the field before it."""
COUNTS = ("clicks", "num_clicks", "click_count")
"""Arguments for the number of clicks."""
LENGTHS = ("seconds", "time", "duration")
"""Arguments for the seconds of a wait or of a long press."""
_BUTTON = ("button", "mouse_button")
_PRESSES = ("presses", "repeat", "times")
_HOLDS = ("modifiers", "modifier", "hold_keys", "held_keys")
"""Arguments for keys that are held during the action."""
_MAY_HOLD = ("keys", "key", "text")
"""Arguments for held keys in an action at a place, if they name only modifiers."""
_SIDES: Mapping[object, Button] = {**BUTTONS, "wheel": "middle"}
_CLICKED = {kind: clicks for clicks, kind in CLICKS.items()}


class Arguments:
    """Arguments of a call; tracks the unread arguments.

    Args:
        given: arguments as the model wrote them; an argument that is null counts as missing.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._left = {key: value for key, value in given.items() if value is not None}

    def take(self, *names: str) -> Any:
        """Returns the first of these arguments that is present, else None."""
        return next((self._left.pop(name) for name in names if name in self._left), None)

    def text(self, name: str) -> str:
        """Returns an argument that is a text; raises ValueError if it is missing or no text."""
        value = self.take(name)
        if not isinstance(value, str):
            raise ValueError(f"`{name}` is missing" if value is None else f"`{name}` is no text: {str(value)[:40]}")
        return value

    def holds_text(self, name: str) -> bool:
        """Checks whether an argument is present and a text."""
        return isinstance(self._left.get(name), str)

    def look(self, name: str, *known: str) -> Any:
        """Returns an argument, or None. It counts as read only if its value is known, so that the action expresses
        it."""
        return self.take(name) if self._left.get(name) in known else self._left.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Lists the names of the arguments that were not read."""
        return tuple(self._left)

    @property
    def unused(self) -> tuple[str, ...]:
        """Lists the arguments that were not read, each as `name=value`."""
        return tuple(f"{key[:40]}={_plain(value)[:80]}" for key, value in self._left.items())


def meant(action: Action, given: Arguments, clicks: int | None = None) -> list[Action]:
    """Returns the actions that a call means with its other arguments: usually the given action, or a different one.

    Args:
        action: the action that follows from the call's name and the arguments read so far.
        given: all arguments of the call; the unread ones decide.
        clicks: the number of clicks that the call's name means, if it differs from the action's.

    Raises:
        ValueError: this project has no such action.
    """
    if isinstance(action, Hotkey):
        if not all(map(is_key, names_of(action.key))):  # a phone's key event
            return [action] * presses(given)
        names = both(held(given, at_place=False), names_of(action.key))
        return [Hotkey(key=together(_with_others(names or [], given)))] * presses(given)
    if isinstance(action, Wait | LongPress) and action.seconds is None:
        longest = MAX_WAIT_S if isinstance(action, Wait) else MAX_HOLD_S
        action = action.model_copy(update={"seconds": seconds_of(given, longest)})
    if isinstance(action, MouseDown | MouseUp):
        refuse_held(action.type, given)
        return [action.model_copy(update={"button": button_of(given) or action.button})]
    if (point := point_of(action)) is None:
        if isinstance(action, Type):
            refuse_held("type", given, at_place=False)
        return [action]
    refuse_held(action.type, given)
    if isinstance(action, Click | LeftDouble | RightSingle | MiddleSingle | TripleClick):
        own = _CLICKED[action.type]
        button, count = button_of(given) or own[0], count_of(given)
        count = own[1] if count in (None, clicks) else count
        kind, written = CLICKS.get((button, count)), f"{counted(count, 'click')} of the {button} button"
        if kind is None:
            raise ValueError(f"not supported: {written}")
        if kind != action.type and not isinstance(action, Click):
            named = counted(clicks or own[1], "click")
            raise ValueError(f"{named} of the {own[0]} button by name are {written} by its arguments")
        return [_AT_PLACE[kind](x=point[0], y=point[1])]
    if isinstance(action, Drag | LongPress | Move) and (button := button_of(given) or "left") != "left":
        raise ValueError(f"not supported: a {action.type} with the {button} button")
    return [action]


_AT_PLACE = {
    "click": Click,
    "left_double": LeftDouble,
    "triple_click": TripleClick,
    "right_single": RightSingle,
    "middle_single": MiddleSingle,
}


def refuse_held(kind: str, given: Arguments, at_place: bool = True) -> None:
    """Raises ValueError if keys are held during an action of this kind."""
    if keys := held(given, at_place):
        raise ValueError(f"not supported: a {kind} while {' '.join(keys)[:40]} is held")


def held(given: Arguments, at_place: bool = True) -> list[str]:
    """Returns the keys that are held during an action.

    Args:
        given: the arguments; arguments for held keys are marked as read.
        at_place: whether the action has a place; if so, arguments such as `keys` and `text` can only name held keys.
    """
    keys = list[str]()
    for name in (*_HOLDS, *(_MAY_HOLD if at_place else ())):
        value = given.look(name)
        if is_unset(value):
            if name in _HOLDS:
                given.take(name)
            continue
        named = [one for one in _names(value) if not is_unset(one)]
        if named and all(map(is_modifier, named)):
            given.take(name)
            keys += named
        elif (isinstance(value, list) and any(map(is_modifier, named))) or (named and name in _HOLDS):
            raise ValueError(f"`{name}` holds keys that are not modifiers: {' '.join(named)[:40]}")
    return keys


def keys_of(given: Arguments) -> Any:
    """Takes the first argument that names keys and is not unset; None if there is none."""
    for none in (is_unset, names_no_key):  # a blank is a key only if no other argument names a key
        if name := next((name for name in _MAY_HOLD if not none(given.look(name))), None):
            return given.take(name)
    return None


def _with_others(names: list[str], given: Arguments) -> list[str]:
    """Returns the keys together with the keys of further arguments. Arguments stay unread if neither side is only
    modifiers."""
    for name in _MAY_HOLD:
        value = given.look(name)
        found = [] if names_no_key(value) else [*_names(value if isinstance(value, list) else str(value))]
        if (together_of := both(names, found)) is not None:
            names = together_of
            given.take(name)
    return names


def both(names: Sequence[str], found: Sequence[str]) -> list[str] | None:
    """Returns the keys that two arguments name, modifiers first; None if neither names only modifiers."""
    known = {usual(one).lower() for one in names}
    new = [one for one in found if usual(one).lower() not in known]
    if not new or all(map(is_modifier, names)):
        return [*names, *new]
    return [*new, *names] if all(map(is_modifier, new)) else None


def is_success(given: Arguments, name: str = "status") -> bool:
    """Returns whether a task ended in success; a missing status is success. Raises ValueError for an unknown status."""
    status = given.take(name)
    return is_unset(status) or means_success(status)


def presses(given: Arguments) -> int:
    """Returns how often a key is pressed; raises ValueError if the number is below 1 or above the supported number."""
    count = _taken(given, *_PRESSES)
    number = _whole(1 if count is None else count)
    if number is None or not 0 < number <= MAX_CALLS:
        raise ValueError(f"a key pressed {_plain(count)[:40]} times")
    return number


def seconds_of(given: Arguments, longest: float, *names: str) -> float | None:
    """Returns the seconds of an action, at most `longest`; None if the call names none.

    Args:
        given: the arguments. One that is no number of seconds, or is too long, stays unread, so that it is reported.
        longest: the maximum of the action.
        names: names of the argument; the usual ones if not given.
    """
    for name in names or LENGTHS:
        value = given.look(name)
        try:
            seconds = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            continue
        if 0 <= seconds <= longest:
            given.take(name)
        if seconds >= 0:
            return min(seconds, longest)
    return None


def written_seconds(seconds: float | None, usual: float) -> float:
    """Returns the seconds that a family writes, as an integer if they are whole.

    Args:
        seconds: seconds of an action; None if it has none.
        usual: seconds that the family writes for such an action.
    """
    written = round(usual if seconds is None else seconds, 3)
    return int(written) if written == int(written) else written


def button_of(given: Arguments) -> Button | Literal[""]:
    """Returns the button of an action: left, middle or right; empty if the call names none. Raises ValueError for any
    other button."""
    button = _taken(given, *_BUTTON)
    if button is None:
        return ""
    name = button.strip().lower() if isinstance(button, str) else button
    if isinstance(name, bool) or not isinstance(name, str | int) or name not in _SIDES:
        raise ValueError(f"unknown mouse button {str(button)[:40]!r}")
    return _SIDES[name]


def count_of(given: Arguments) -> int | None:
    """Returns the number of clicks of an action; None if the call names none. Raises ValueError if the number is not
    whole."""
    count = _taken(given, *COUNTS)
    if count is not None and _whole(count) is None:
        raise ValueError(f"a click of {str(count)[:40]!r} clicks")
    return None if count is None else _whole(count)


def _taken(given: Arguments, *names: str) -> Any:
    """Takes the first of these arguments that is set."""
    while (value := given.take(*names)) is not None:
        if not is_unset(value):
            return value
    return None


def _whole(value: object) -> int | None:
    try:
        number = None if isinstance(value, bool) else float(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if number is not None and number.is_integer() else None


def _names(value: object) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for one in cast(list[object], value):
            yield from _names(one)
    elif isinstance(value, str):
        yield from names_of(value)


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
