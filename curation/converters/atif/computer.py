"""Converts calls of other agents' computer tools to Python code for `read_code`.

Harbor's computer-1 calls `computer_action`. cua-bench and Anthropic's tool call `computer`. Gemini's tool has a
function for each action. As Python code, keys, buttons and points of all formats have the same grammar.

Source: harbor 0.26.0, `harbor/agents/computer_1`; cua-bench 0.3.1, `cua_bench/results.py` and `types.py`.
"""

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from common.text import counted, strict_json
from curation.converters.exchanged import OWN
from curation.converters.files import items_of
from models.families.code.arguments import (
    CLEARS,
    ENTERS,
    Arguments,
    both,
    button_of,
    count_of,
    held,
    presses,
    refuse_held,
    seconds_of,
)
from models.families.code.calls import NoAction, is_unset, names_no_key
from models.families.code.program import means_success
from models.families.reading import is_true
from schemas.action import MAX_WAIT_S
from schemas.keyboard import is_key, is_modifier, names_of

TOOLS = (
    *("computer", "computer_action", "computer_call"),
    *("computer_20241022", "computer_20250124", "computer_20251124"),
)
"""Functions with the action's kind as an argument and points in pixels. Names with a date are versions of Anthropic's
tool; `computer_call` is OpenAI's."""
DONE = "mark_task_complete"
GRID = 999
"""Side of the grid of coordinates in Gemini's tool, and in computer-1's actions with the source
`normalized_completion`."""
LONG_EDGE, PIXELS = 1568, 1_150_000
"""Limits above which Anthropic's tool shrinks a screen; computer-1 records its calls in the shrunk coordinates."""
LOOKS = ("screenshot", "take_screenshot", "cursor_position", "zoom", "zoom_region", "")
"""Kinds that only take a screenshot or read a state, and are no actions."""
CLICKS = {
    "click": "click",
    "left_click": "click",
    "right_click": "rightClick",
    "middle_click": "middleClick",
    "double_click": "doubleClick",
    "triple_click": "tripleClick",
}
CLICKED = {"rightClick": 1, "middleClick": 1, "doubleClick": 2, "tripleClick": 3}
"""Number of clicks of kinds that name a number."""
CLEAR = "clear_before_typing"
"""Argument of Gemini's tool that empties a field."""
KEYS = ("keys", "key", "text")
"""Arguments for keys."""
KEYSYMS = {"return": "enter", "prior": "pageup", "next": "pagedown", "page_up": "pageup", "page_down": "pagedown"}
"""X11's names of keys that pyautogui does not know."""
NATIVE = frozenset(
    {
        *("click", "double_click", "triple_click", "middle_click", "right_click", "mouse_down", "mouse_up", "move"),
        *(
            "type",
            "type_text_at",
            "drag_and_drop",
            "scroll",
            "press_key",
            "hotkey",
            "key_down",
            "key_up",
            "zoom_region",
            "navigate",
        ),
        *("go_back", "go_forward", "wait", "take_screenshot"),
    }
)
"""Functions of Gemini's tool."""
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
T = TypeVar("T")


def kind_of(function: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the kind of a call's action, and its fields that are not null.

    Raises:
        NoAction: a `computer` call names no kind.
    """
    if function == DONE:
        return "done", {"text": _first_given(arguments.get("result"))}
    if function not in TOOLS:
        return function, _given(arguments)
    action = arguments.get("action")
    if isinstance(action, Mapping):
        return kind_of(function, cast(Mapping[str, Any], action))
    if isinstance(action, str) and action.endswith(")"):
        return _of_repr(action)
    fields = _given(arguments)
    kind = fields.pop("type", None) or fields.pop("action", None)
    if not isinstance(kind, str):
        raise NoAction(f"a call of {function} that names no action")
    return kind, fields


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _of_repr(text: str) -> tuple[str, dict[str, Any]]:
    """Reads the kind and fields of an action in the form of a dataclass's `repr`: `ClickAction(x=25, y=50)`."""
    try:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args
        fields = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
    except (AssertionError, SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise NoAction(f"no action in {text[:80]!r}") from error
    return _WORD.sub("_", call.func.id.removesuffix("Action")).lower(), _given(fields)


def codes_of(kind: str, fields: Mapping[str, Any]) -> list[str]:
    """Returns the calls that an action of a computer tool performs, in order; an empty text if it performs nothing.

    Raises:
        NoAction: the action has no counterpart.
    """
    return _typing(kind, fields) if kind in ("type", "type_text_at") else [_code_of(kind, fields)]


def _typing(kind: str, fields: Mapping[str, Any]) -> list[str]:
    """Returns a click if the text has a place, keys that empty the field, and the text together with its Enter.

    Harbor's `type_text_at` empties the field by typing over its text and presses Enter, unless the call sets these to
    false.
    """
    at, text = _at(fields), fields.get("text", "")
    _refuse_held(kind, fields, at_place=False)
    if kind == "type_text_at":
        enter, clear = (not _is_false(fields.get(name)) for name in (ENTERS[0], CLEAR))
    else:
        enter, clear = (any(is_true(fields.get(name)) for name in names) for names in (ENTERS, CLEARS))
    codes = [_call("click", **at)] if at else []
    if clear:
        codes.append(_call("hotkey", "ctrl", "a"))
        if text == "" and kind == "type":
            codes.append(_call("press", keys="backspace"))
    written = _call("write", message=text)
    return [*codes, f"{written}\n{_call('press', keys='enter')}" if enter else written]


def _is_false(value: object) -> bool:
    return value is False or (isinstance(value, str) and value.strip().lower() == "false")


def _code_of(kind: str, fields: Mapping[str, Any]) -> str:
    fields = _given(fields)
    if kind in LOOKS:
        return ""
    if kind in CLICKS:
        _refuse_held(kind, fields)
        return _click(kind, fields)
    if kind in ("key_down", "key_up"):
        if _read(presses, fields) > 1:
            raise NoAction(f"not supported: several times a {kind}")
        return "\n".join(_call("keyDown" if kind == "key_down" else "keyUp", key=one) for one in _named(fields))
    if kind in _POINTING:
        _refuse_held(kind, fields)
        return _POINTING[kind](fields)
    if kind not in _PLAIN:
        raise NoAction(f"not supported: {kind[:80]}")
    return _PLAIN[kind](fields)


def _click(kind: str, fields: Mapping[str, Any]) -> str:
    """Returns the code of a click. Its kind may name button and count; other arguments must not contradict them."""
    function = CLICKS[kind]
    button, count, own = _read(button_of, fields), _read(count_of, fields), CLICKED.get(function)
    if own not in (None, count) and count is not None:
        raise NoAction(f"a {kind} of {counted(count, 'click')}")
    side = function.removesuffix("Click") if function in ("rightClick", "middleClick") else ""
    if side and button not in ("", side):
        raise NoAction(f"a {kind} of the {button} button")
    named = {"button": "" if side else button, "clicks": None if own else count}
    return _call(function, **_at(fields), **{name: one for name, one in named.items() if one not in ("", None)})


def _read(read: Callable[[Arguments], T], fields: Mapping[str, Any]) -> T:
    """Reads arguments by the rules of all formats; raises NoAction if they make no action of this project."""
    try:
        return read(Arguments(fields))
    except ValueError as error:
        raise NoAction(str(error)) from error


def _status(fields: Mapping[str, Any]) -> str:
    """Returns how a task ended; success if nothing is given."""
    status = fields.get("status")
    try:
        return "success" if is_unset(status) or means_success(status) else "failure"
    except ValueError as error:
        raise NoAction(str(error)) from error


def _first_given(*values: object) -> object:
    """Returns the first value that is neither null nor empty; else an empty text. 0 and false are values."""
    return next((one for one in values if one is not None and one != "" and one != [] and one != {}), "")


def _answer(fields: Mapping[str, Any]) -> str:
    answer = _first_given(fields.get("result"), fields.get("text"))
    return answer if isinstance(answer, str) else strict_json(answer, ensure_ascii=False)


def _call(name: str, *given: object, **named: object) -> str:
    return f"pyautogui.{name}({_arguments(*given, **named)})"


def _arguments(*given: object, **named: object) -> str:
    return ", ".join([repr(one) for one in given] + [f"{name}={value!r}" for name, value in named.items()])


def _at(fields: Mapping[str, Any], *pair: str) -> dict[str, Any]:
    """Returns the point of an action as arguments; empty without a point."""
    x, y = pair or ("x", "y")
    points = items_of(fields.get("coordinate")) if not pair else None
    if points is not None and len(points) == 2:
        return {"x": points[0], "y": points[1]}
    return {name: fields[key] for name, key in (("x", x), ("y", y)) if key in fields}


def _refuse_held(kind: str, fields: Mapping[str, Any], at_place: bool = True) -> None:
    """Raises NoAction if keys are held during an action."""
    _read(lambda given: refuse_held(kind, given, at_place), fields)


def _names(fields: Mapping[str, Any]) -> list[str]:
    """Returns the keys that an action names: held keys, and keys in arguments, as lists or expressions.

    Two arguments name one chord if one of them has only modifiers. Otherwise, the second argument must be a text that
    is no key, or blank; raises NoAction if it is a key.
    """
    names = list[str]()
    for given in sorted((fields[name] for name in KEYS if not names_no_key(fields.get(name))), key=is_unset):
        found = [KEYSYMS.get(one.lower(), one) for item in _flat(given) for one in names_of(item)]
        merged = both(names, found)
        if merged is None and not is_unset(given) and all(map(is_key, found)):
            ours = f"{' '.join(names)} and {' '.join(found)}"
            raise NoAction(f"two of {', '.join(map('`{}`'.format, KEYS))} name different keys: {ours[:80]}")
        names = merged or names
    return both(_read(lambda given: held(given, at_place=False), fields), names) or names


def _flat(keys: object) -> Iterator[str]:
    """Yields the names of keys in nested lists, without unset values."""
    for one in items_of(keys) or []:
        yield from _flat(one)
    if items_of(keys) is None and not names_no_key(keys):
        yield str(keys)


def _named(fields: Mapping[str, Any]) -> list[str]:
    """Returns the keys that an action names; raises NoAction if it names none."""
    if not (names := _names(fields)):
        raise NoAction("a key without a name")
    return names


def _keys(fields: Mapping[str, Any]) -> str:
    """Returns the code of keys: a chord if all keys except the last are modifiers, else one key after the other."""
    names, times = _named(fields), _read(presses, fields)
    if times > 1 and len(names) > 1:
        raise NoAction(f"not supported: {times} times {' '.join(names)[:80]}")
    if times > 1:
        return _call("press", keys=names, presses=times)
    if len(names) > 1 and all(map(is_modifier, names[:-1])):
        return _call("hotkey", *names)
    if len(names) > 1 and any(map(is_modifier, names)):
        raise NoAction(f"not supported: several chords: {' '.join(names)[:80]}")
    return "\n".join(_call("press", keys=one) for one in names)


def _scroll(fields: Mapping[str, Any]) -> str:
    """Returns the code of a scroll, which names a direction, or has amounts that are positive for down and right."""
    amounts = ("scroll_y", "scrollY", "scroll_x", "scrollX")
    usual = None if any(name in fields for name in amounts) else "down"  # computer-1's default
    way = fields.get("direction") or fields.get("scroll_direction") or usual
    if way is None:
        down, right = _amount(fields, *amounts[:2]), _amount(fields, *amounts[2:])
        vertical = ["down" if down > 0 else "up"] if down else []
        ways = [*vertical, *(["right" if right > 0 else "left"] if right else [])]
        if len(ways) != 1:
            raise NoAction("a scroll in two directions" if ways else "a scroll by nothing")
        (way,) = ways
    if way not in ("up", "down", "left", "right"):
        raise NoAction(f"a scroll {str(way)[:80]!r}")
    clicks = -1 if way in ("down", "left") else 1
    return _call("scroll" if way in ("up", "down") else "hscroll", clicks, **_at(fields))


def _amount(fields: Mapping[str, Any], *names: str) -> float:
    found = next((fields[name] for name in names if name in fields), 0)
    try:
        amount = math.nan if isinstance(found, bool) else float(found)
    except (TypeError, ValueError, OverflowError):
        amount = math.nan
    if not math.isfinite(amount):
        raise NoAction(f"a scroll by no amount, in {names[0]}")
    return amount


def _drag(fields: Mapping[str, Any]) -> str:
    """Returns the code of a drag from one point to another."""
    path = items_of(fields.get("path"))
    start, end = _at(fields, "x", "y"), _at(fields, "end_x", "end_y")
    if path is not None:
        if len(path) != 2:
            raise NoAction(f"a drag along {len(path)} points")
        start, end = (_place(one) for one in path)
    elif "from_x" in fields:
        start, end = _at(fields, "from_x", "from_y"), _at(fields, "to_x", "to_y")
    elif "start_x" in fields:
        start = _at(fields, "start_x", "start_y")
    elif "coordinate" in fields:
        start = _place(fields["start_coordinate"]) if "start_coordinate" in fields else {}
        end = _at(fields)
    begin = f"{_call('moveTo', **start)}\n" if start else ""
    return f"{begin}{_call('dragTo', **end, button=_read(button_of, fields) or 'left')}"


def _button(function: str, fields: Mapping[str, Any]) -> str:
    """Returns the code of a button that goes down or up."""
    return _call(function, **_at(fields), button=_read(button_of, fields) or "left")


def _wait(fields: Mapping[str, Any]) -> str:
    """Returns the code of a wait, with its seconds if it has any."""
    seconds = _read(lambda given: seconds_of(given, MAX_WAIT_S), fields)
    return f"computer.wait({'' if seconds is None else f'seconds={seconds!r}'})"


def _place(point: object) -> dict[str, Any]:
    """Returns a point of a path, which is a pair or an object, as arguments."""
    if isinstance(point, Mapping):
        return _at(cast(Mapping[str, Any], point))
    pair = items_of(point)
    if pair is None or len(pair) != 2:
        raise NoAction(f"{str(point)[:80]!r} is not a point")
    return {"x": pair[0], "y": pair[1]}


_POINTING: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    **dict.fromkeys(("move", "mouse_move", "move_to"), lambda fields: _call("moveTo", **_at(fields))),
    **dict.fromkeys(("mouse_down", "left_mouse_down"), lambda fields: _button("mouseDown", fields)),
    **dict.fromkeys(("mouse_up", "left_mouse_up"), lambda fields: _button("mouseUp", fields)),
    **dict.fromkeys(("drag", "left_click_drag", "drag_and_drop"), _drag),
    "scroll": _scroll,
}
"""Code of an action at a point other than a click, by its kind."""
_PLAIN: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    **dict.fromkeys(("key", "keypress", "press_key", "hotkey"), _keys),
    **dict.fromkeys(("wait", "sleep"), lambda fields: _wait(fields)),
    **dict.fromkeys(("done", "answer"), lambda fields: f"{OWN}.finished({_arguments(content=_answer(fields))})"),
    "terminate": lambda fields: f"computer.terminate({_arguments(status=_status(fields), info=_answer(fields))})",
    "navigate": lambda fields: f"{OWN}.navigate({_arguments(content=fields.get('url', ''))})",
    "go_back": lambda fields: f"{OWN}.navigate_back()",
    "go_forward": lambda fields: _call("hotkey", "alt", "right"),
    "bash": lambda fields: f"{OWN}.terminal({_arguments(command=fields.get('command') or fields.get('text') or '')})",
}
"""Code of an action without a point, by its kind."""


def shrunk(width: int, height: int) -> float:
    """Returns the factor by which Anthropic's tool shrinks a screen, as computer-1 computes it."""
    return min(1.0, LONG_EDGE / max(width, height), math.sqrt(PIXELS / (width * height)))
