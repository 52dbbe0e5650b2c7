"""Reads and writes UI-Venus-2's calls: one call of Python in `<action>`, with named arguments only.

The harnesses of a desktop, a browser and a phone have different calls. A desktop's calls are checked as its own reader
checks them: an unknown, missing or repeated argument is an error, and so is a place that is no tuple. They are played
on a simulated pointer (`models.families.code.program`). All calls of a `Sequence` become actions, or none does.

Source: github.com/inclusionAI/UI-Venus @81945ac, models/computer/computer_example.py (`parse_response`),
models/browser/venus_browser.py (`parse_action`, `point`), models/mobile/mobile_example.py (`parse_action_call`,
`to_pixel`).
"""

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from pydantic import ValidationError

from models.families.code.arguments import Arguments, meant
from models.families.code.calls import MAX_CALLS, MAX_TEXT, Call
from models.families.code.program import play_calls
from models.families.reading import ParsedReply, Sides, code_until, place_in
from schemas.action import (
    MAX_HOLD_S,
    Action,
    CallUser,
    Hotkey,
    LongPress,
    NavigateBack,
    Note,
    PressBack,
    PressEnter,
    PressHome,
    PressRecent,
    Wait,
    action_of,
)
from schemas.keyboard import together_in
from schemas.problem import named_problem

GRID: Mapping[str, Sides] = {"computer": (999.0, 999.0), "browser": (1000.0, 1000.0), "mobile": (1000.0, 1000.0)}
"""Width and height of a screen by template. A desktop's coordinates are in [0, 999], the others in [0, 1000)."""
AMOUNTS = 4096
"""Maximum amount of a `Swipe`, in either direction."""
CHILDREN = (2, 32)
"""Minimum and maximum calls of a `Sequence`."""
_OPEN = re.compile(r"<action>", re.IGNORECASE)
_TAG = re.compile(r"</?action", re.IGNORECASE)
_BREAKS = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})
_TERMINAL = ("CallUser", "Finished")
_POINTED = {
    "Click": "click", "DoubleClick": "doubleClick", "TripleClick": "tripleClick", "RightClick": "rightClick",
    "MiddleClick": "middleClick", "Hover": "moveTo", "MouseDown": "mouseDown", "MouseUp": "mouseUp",
}  # fmt: skip
_AT_POINTER = {"Click": "left", "RightClick": "right", "MiddleClick": "middle"}
"""Buttons of the calls that, without a place, are performed at the pointer."""
_HELD = {"KeyDown": "keyDown", "KeyUp": "keyUp"}
_COMPUTER: Mapping[str, str] = {
    **dict.fromkeys(_POINTED, "?box"),
    "Hover": "box",
    "Drag": "end ?start",
    "Swipe": "amount axis",
    "Hotkey": "keys ?repeat",
    **dict.fromkeys(_HELD, "keys"),
    **dict.fromkeys(("Type", *_TERMINAL), "?content"),
    "Wait": "",
}
"""A desktop's calls and their arguments; an argument behind a question mark may be missing."""
_AT_POINT = {"Click": "click", "DoubleClick": "left_double", "LongPress": "long_press", "Hover": "move"}
_TOUCHED = ("Click", "DoubleClick", "LongPress")
_MOBILE = ("Drag", "Swipe", "Type", "LaunchApp", "Wait", "CallUser", "PressBack", "PressHome", "PressEnter", "Answer")
_BROWSER = ("Drag", "Scroll", "Type", "Launch", "Wait", "CallUser", "PressBack", "PressHome", "PressEnter", "Hotkey")
_NAMES: Mapping[str, tuple[str, ...]] = {
    "mobile": (*_TOUCHED, *_MOBILE, "Finished", "GetScreenshot", "PressRecent"),
    "browser": (*_AT_POINT, *_BROWSER, "Finished", "GetUrl", "TakeNote", "SelectOption"),
}
_PRESSED: Mapping[tuple[str, str], Action] = {
    ("mobile", "PressBack"): PressBack(), ("mobile", "PressHome"): PressHome(), ("mobile", "PressEnter"): PressEnter(),
    ("mobile", "PressRecent"): PressRecent(),
    ("browser", "PressBack"): NavigateBack(), ("browser", "PressHome"): Hotkey(key="home"),
    ("browser", "PressEnter"): Hotkey(key="enter"),
}  # fmt: skip


def read_venus(text: str, template: str) -> ParsedReply:
    """Reads the thought and the actions of a reply; never raises for any text of a model.

    Args:
        text: the thought, then one `<action>`. A text without tags is the call itself.
        template: the harness: computer, browser or mobile.
    """
    opened = _OPEN.search(text)
    if opened is None:
        whole = text.strip()
        if _TAG.search(text):
            return ParsedReply(whole, "", error=f"an <action> without its begin in {whole[-80:]!r}")
        return _read("", whole, whole, template)
    close = f"</{opened[0][1:]}"
    stop, end = code_until(text, opened.end(), close)
    thought, shown = text[: opened.start()], text[opened.start() : end].strip()
    if not text.startswith(close, stop):
        return ParsedReply(thought, shown, error=f"an <action> without its end in {shown[:80]!r}")
    if _OPEN.search(text, end):
        return ParsedReply(thought, shown, error=f"more than one <action> in {text[-80:]!r}", complete=True)
    return _read(thought, shown, text[opened.end() : stop].strip(), template, text[end:])


def _read(thought: str, shown: str, call: str, template: str, after: str = "") -> ParsedReply:
    unused = list[str]()
    try:
        actions = _played(call, unused) if template == "computer" else _single(call, template, unused)
    except ValidationError as error:
        problem = named_problem(error)
    except (ValueError, RecursionError) as error:
        problem = str(error)[:160]
    else:
        parts = len(actions)
        return ParsedReply(thought, shown, actions, None, parts, tuple(unused), tagged=True, after=after)
    return ParsedReply(thought, shown, error=f"{problem} in {shown[:80]!r}", tagged=True)


def _parsed(text: str) -> tuple[str, list[ast.keyword]]:
    """Parses a call, and returns its name and its arguments; raises ValueError for anything else.

    A line end within a quoted text stands for itself, as in the phone's own reader.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"{len(text):,} characters in <action>, and at most {MAX_TEXT:,} are read")
    problem = ""
    for one in (text, text.translate(_BREAKS)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)
                return _call(ast.parse(one, mode="eval").body)
        except SyntaxError as error:
            problem = problem or error.msg[:80]
        except (RecursionError, MemoryError):
            problem = problem or "it is nested too deep"
    raise ValueError(f"no call ({problem})")


def _call(node: ast.expr) -> tuple[str, list[ast.keyword]]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError("no call of a function")
    name, words = node.func.id, [one.arg for one in node.keywords]
    if node.args or None in words:
        raise ValueError(f"{name} has an argument without a name")
    if twice := next((one for one in words if words.count(one) > 1), None):
        raise ValueError(f"{name} has the argument {twice!r} twice")
    return name, node.keywords


def _values(name: str, keywords: list[ast.keyword]) -> dict[str, Any]:
    """Evaluates arguments, which are literals."""
    try:
        return {str(one.arg): ast.literal_eval(one.value) for one in keywords}
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(f"{name} has an argument that is no literal") from error


def _calls_of(text: str, unused: list[str]) -> list[Call]:
    """Lists the calls of a desktop's call: itself, or the calls of a `Sequence`.

    It adds the arguments that no action expresses to `unused`.
    """
    name, keywords = _parsed(text)
    if name != "Sequence":
        return [*_checked(name, keywords, unused)]
    listed = keywords[0].value if [one.arg for one in keywords] == ["actions"] else None
    if not isinstance(listed, ast.List) or not CHILDREN[0] <= len(listed.elts) <= CHILDREN[1]:
        raise ValueError(f"Sequence takes actions=[...] with {CHILDREN[0]} to {CHILDREN[1]} calls")
    children = [_call(one) for one in listed.elts]
    if any(child in _TERMINAL for child, _ in children[:-1]):
        raise ValueError("Sequence goes on after its CallUser or Finished")
    return [call for child in children for call in _checked(*child, unused)]


def _checked(name: str, keywords: list[ast.keyword], unused: list[str]) -> Iterator[Call]:
    """Yields the calls, by pyautogui's names, that a desktop's call stands for."""
    if name == "Sequence":
        raise ValueError("a Sequence within a Sequence")
    if name not in _COMPUTER:
        raise ValueError(f"there is no action for {name[:40]!r}")
    known, given = _COMPUTER[name].split(), _values(name, keywords)
    if missing := [one for one in known if one[0] != "?" and one not in given]:
        raise ValueError(f"{name} without its {missing[0]}")
    if unknown := [one for one in given if one not in known and f"?{one}" not in known]:
        raise ValueError(f"{name} has no argument {unknown[0][:40]!r}")
    for key, value in given.items():
        if not _KINDS[key](value):
            raise ValueError(f"{str(value)[:40]} is no {key} of {name}")
    written = f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"

    def call(function: str, *values: Any, **named: Any) -> Call:
        return Call("", function, values, named, written=written[:80])

    if name in _AT_POINTER and not given:
        yield call("mouseDown", button=_AT_POINTER[name])
        yield call("mouseUp", button=_AT_POINTER[name])
    elif name in _POINTED:
        yield call(_POINTED[name], *given.get("box", ()))
    elif name == "Drag" and "start" in given:
        yield call("moveTo", *given["start"])
        yield call("dragTo", *given["end"])
    elif name == "Drag":
        yield call("mouseDown")
        yield call("mouseUp", *given["end"])
    elif name == "Swipe":
        unused.append(f"amount={given['amount']}")
        yield call("scroll" if given["axis"] == "vertical" else "hscroll", given["amount"])
    elif name == "Hotkey":
        yield from [call("hotkey", *given["keys"])] * given.get("repeat", 1)
    elif name in _HELD:
        yield from (call(_HELD[name], key) for key in given["keys"])
    elif name == "Finished":
        yield call("terminate", status="success", answer=given.get("content", ""))
    elif name == "Type":
        yield call("write", given.get("content", ""))
    elif name == "CallUser":
        yield call("call_user", content=given.get("content", ""))
    else:
        yield call("wait")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_place(value: Any) -> bool:
    side = GRID["computer"][0]
    return isinstance(value, tuple) and len(value) == 2 and all(_is_number(one) and 0 <= one <= side for one in value)


def _is_keys(value: object) -> bool:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_CALLS:
        return False
    return all(isinstance(one, str) and one.strip() for one in cast(list[object], value))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_CALLS


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("box", "start", "end"), _is_place),
    "keys": _is_keys,
    "repeat": _is_count,
    "amount": lambda value: isinstance(value, int) and not isinstance(value, bool) and abs(value) <= AMOUNTS,
    "axis": lambda value: value in ("vertical", "horizontal"),
    "content": lambda value: isinstance(value, str),
}
"""Check of each argument of a desktop's calls."""


def _played(text: str, unused: list[str]) -> tuple[Action, ...]:
    """Plays a desktop's call, and adds the arguments that no action expresses to `unused`."""
    columns, rows = GRID["computer"]
    calls = _calls_of(text, unused)
    played = play_calls(calls, lambda x, y: (x / columns, y / rows))
    if played.problem:
        raise ValueError(played.problem if len(calls) > 1 else played.problem.removesuffix(f" in {calls[0].written!r}"))
    return played.actions


def _single(text: str, template: str, unused: list[str]) -> tuple[Action, ...]:
    """Converts a browser's or a phone's call, and adds the arguments that no action expresses to `unused`."""
    name, keywords = _parsed(text)
    given = Arguments(_values(name, keywords))
    if template == "browser":  # its reader ignores case and underscores
        plain = name.replace("_", "").lower()
        name = next((one for one in _NAMES["browser"] if one.lower() == plain), name)
    if name not in _NAMES[template]:
        raise ValueError(f"there is no action for {name[:40]!r}")
    actions = meant(_action(name, given, template), given)
    if template == "browser":  # the prompt's default of 20 s is longer than any press
        held = {"seconds": MAX_HOLD_S}
        actions = [
            one.model_copy(update=held) if isinstance(one, LongPress) and one.seconds is None else one
            for one in actions
        ]
    unused += given.unused
    return tuple(actions)


def _action(name: str, given: Arguments, template: str) -> Action:
    if name in _AT_POINT:
        x, y = _place(given.take(*(("point", "box") if template == "mobile" else ("point",))), name)
        return action_of({"type": _AT_POINT[name], "x": x, "y": y})
    if name in ("Drag", "Swipe"):
        (x, y), (to_x, to_y) = _place(given.take("start"), name), _place(given.take("end"), name)
        return action_of({"type": "drag", "x": x, "y": y, "to_x": to_x, "to_y": to_y})
    if name == "Scroll":
        place, way = given.take("point"), given.take("direction")
        at = {} if place is None else dict(zip("xy", _place(place, name), strict=True))
        return action_of({"type": "scroll", **at, "direction": str(way or "down").lower()})
    if name == "Type":
        return action_of({"type": "type", "content": given.text("content")})
    if name == "Launch":
        return action_of({"type": "navigate", "content": given.text("url")})
    if name == "LaunchApp":
        return action_of({"type": "open_app", "app_name": given.text("app")})
    if name == "Hotkey":
        return Hotkey(key=together_in(_keys(given.take("keys"))))
    if name in ("Finished", "Answer"):
        return action_of({"type": "finished", "content": given.text("content") if "content" in given.names else ""})
    if name == "CallUser":
        return CallUser(content=given.text("content") if "content" in given.names else "")
    if name == "TakeNote":
        return Note(content=given.text("content") if "content" in given.names else "")
    if name == "Wait":
        return Wait()
    if (template, name) in _PRESSED:
        return _PRESSED[template, name]
    raise ValueError(f"not supported: {name}")


def _place(value: object, name: str) -> tuple[float, float]:
    """Returns a browser's or a phone's place as fractions in [0, 1)."""
    if not isinstance(value, list | tuple) or len(cast(list[object], value)) != 2:
        raise ValueError(f"{name} without a place" if value is None else f"{str(value)[:40]} is no place of {name}")
    x, y = place_in([*cast(list[object], value)], GRID["browser"])
    if not (0 <= x < 1 and 0 <= y < 1):
        raise ValueError(f"{str(value)[:40]} is outside of the screen")
    return x, y


def _keys(value: object) -> list[str]:
    keys = (
        [value] if isinstance(value, str) else [*cast(list[object], value)] if isinstance(value, list | tuple) else []
    )
    if not keys or not all(isinstance(one, str) for one in keys):
        raise ValueError("Hotkey without its keys")
    return [str(one) for one in keys]
