"""Actions as calls in Python: pyautogui's, as AgentNet has them, and ScaleCUA's, which are the same without a module.

Code is parsed, never run. Scrolls have a direction and no amount here, so an amount is written as `SCROLL` and read as
its sign; a record's own code is kept beside the action. What a format has no call for is written as
`flywheel.NAME(...)`, which its readers refuse rather than take for something else.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import ValidationError

from curation.converters.exchanged import MOST_TEXT, OWN
from curation.converters.files import items_of
from models.families.opencua import key_of, pressed
from schemas.action import Action, action_of
from schemas.problem import named_problem

SCROLL = 5
"""Wheel clicks that a scroll is written with."""
DIGITS = 4
"""Decimals of a coordinate, as AgentNet and ScaleCUA write them."""
Style = Literal["agentnet", "scalecua"]
Point = tuple[float, float]
ToFraction = Callable[[float, float], Point]
"""From the code's unit to fractions of the screen; raises ValueError outside of it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, its arguments literals."""

    module: str
    function: str
    given: tuple[Any, ...]
    named: Mapping[str, Any]

    def argument(self, name: str, place: int | None = None) -> Any:
        """An argument by its name or its place; None where it is not given."""
        if name in self.named:
            return self.named[name]
        return self.given[place] if place is not None and place < len(self.given) else None


class Unmapped(ValueError):
    """Code that stands for no action of ours."""


class OutOfScreen(ValueError):
    """A coordinate that lies outside of the screen."""


def read_code(code: str, fraction: ToFraction, pointer: Point | None = None) -> tuple[Action, Point | None]:
    """The action that code stands for, and where the pointer is after it.

    Args:
        code: one call, or a move of the pointer and one call.
        fraction: gives a point of the code's unit in fractions.
        pointer: where the pointer was before, for calls without a point.

    Raises:
        Unmapped: no call, calls that are no one action of ours, an argument that is none.
        OutOfScreen: a point outside of the screen.
    """
    calls = _calls(code)
    moves = [call for call in calls if call.function == "moveTo"]
    others = [call for call in calls if call.function != "moveTo"]
    if len(others) == 2 and calls[-2:] == others and (line := _line(*others)):
        calls, others = [*moves, line], [line]
    if len(others) != 1 or calls[-1] is not others[0]:
        raise Unmapped(f"no single action in {code[:80]!r}")
    call = others[0]
    for move in moves:
        pointer = _point(move, fraction, "x", "y", 0) or pointer
    try:
        own: dict[str, object] = {**call.named, "type": call.function}
        action = action_of(own if call.module == OWN else _fields(call, fraction, pointer))
    except ValidationError as error:
        raise Unmapped(f"{named_problem(error)} in {code[:80]!r}") from error
    at = action.model_dump()
    where = (at.get("to_x", at.get("x")), at.get("to_y", at.get("y")))
    return action, (where if None not in where else pointer)  # pyright: ignore[reportReturnType]


def _line(written: Call, after: Call) -> Call | None:
    """Text and the Enter after it as one call, whose text ends the line; None where they are something else."""
    text = written.argument("message", 0) if written.function in ("write", "typewrite") else None
    if (
        not isinstance(text, str)
        or after.function not in ("press", "hotkey")
        or _keys(after) not in ("enter", "return")
    ):
        return None
    return replace(written, given=(), named={"message": f"{text}\n"})


def pointer_after(code: str, fraction: ToFraction, pointer: Point | None) -> Point | None:
    """Where the pointer is after code that is no one action of ours, such as a triple click; None where nothing tells,
    so that nothing after it is read as an action at a place that the pointer has left.

    Args:
        code, fraction, pointer: as `read_code` has them.
    """
    try:
        for call in _calls(code):
            if call.function in AIMED:
                pointer = _point(call, fraction, "x", "y", 0) or pointer
            elif call.function not in STILL:
                pointer = None
    except (Unmapped, OutOfScreen):
        return None
    return pointer


def write_code(action: Action, style: Style) -> str:
    """The code of an action, coordinates in fractions."""
    fields = action.model_dump(exclude={"type"})
    rounded = {name: round(value, DIGITS) if isinstance(value, float) else value for name, value in fields.items()}
    written = (_agentnet if style == "agentnet" else _scalecua)(action.type, rounded)
    return written or _call(f"{OWN}.{action.type}", **rounded)


def _calls(code: str) -> list[Call]:
    if len(code) > MOST_TEXT:
        raise Unmapped(f"{len(code):,} characters of code")
    try:
        body = ast.parse(code.strip()).body
        return [_one(node) for node in body if not isinstance(node, ast.Import)] or _nothing(code)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        if isinstance(error, Unmapped):
            raise
        raise Unmapped(f"{str(error)[:80]} in {code[:80]!r}") from error


def _nothing(code: str) -> list[Call]:
    raise Unmapped(f"no call in {code[:80]!r}")


def _one(node: ast.stmt) -> Call:
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call):
        raise Unmapped("a statement that is no call")
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        module, name = function.value.id, function.attr
    elif isinstance(function, ast.Name):
        module, name = "", function.id
    else:
        raise Unmapped("a call of what is no function")
    named = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
    return Call(module, name, tuple(ast.literal_eval(one) for one in call.args), named)


def _point(call: Call, fraction: ToFraction, x: str, y: str, place: int | None) -> Point | None:
    """The point of a call, or None where it has none."""
    at = call.argument(x, place), call.argument(y, None if place is None else place + 1)
    if at == (None, None):
        return None
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in at):
        raise Unmapped(f"{at!r} is no point")
    try:
        return fraction(float(at[0]), float(at[1]))
    except OverflowError as error:
        raise OutOfScreen(f"{at!r}") from error
    except ValueError as error:
        raise OutOfScreen(str(error)) from error


AIMED = ("moveTo", "click", "leftClick", "doubleClick", "rightClick", "middleClick", "tripleClick", "triple_click")
"""Calls after which the pointer is at their point, or where it was if they have none."""
STILL = ("press", "hotkey", "keyDown", "keyUp", "write", "typewrite", "wait", "sleep", "terminate", "response")
"""Calls that leave it."""
POINTED = ("click", "leftClick", "doubleClick", "rightClick", "long_press")
USUAL = {"doubleClick": ("left", 2), "rightClick": ("right", 1)}
"""Button and clicks of a call that names neither; of all others the left one, once."""
CLICKS = {("left", 1): "click", ("left", 2): "left_double", ("right", 1): "right_single"}
BUTTONS = {"primary": "left", "secondary": "right"}
PLAIN = {
    "wait": "wait",
    "sleep": "wait",
    "call_user": "call_user",
    "go_backward": "navigate_back",
    "navigate_home": "press_home",
    "navigate_back": "press_back",
}
TEXTS = {
    "write": ("type", "content", "message"),
    "typewrite": ("type", "content", "message"),
    "keyDown": ("press", "key", "key"),
    "keyUp": ("release", "key", "key"),
    "open_app": ("open_app", "app_name", "app_name"),
    "open_url": ("navigate", "content", "url"),
}
"""Calls of one text: the action, its field, the argument."""


def _fields(call: Call, fraction: ToFraction, pointer: Point | None) -> dict[str, object]:
    """The fields of the action that a call stands for."""
    name = call.function
    if name in PLAIN:
        return {"type": PLAIN[name]}
    if name in TEXTS:
        kind, key, argument = TEXTS[name]
        text = call.argument(argument, 0)
        return {"type": kind, key: _key(text) if key == "key" else text}
    if name in POINTED:
        return _click(call, _point(call, fraction, "x", "y", 0) or pointer)
    if name in ("scroll", "hscroll"):
        return _scroll(call, _point(call, fraction, "x", "y", 1) or pointer)
    if name == "dragTo":
        button = call.argument("button") or next((one for one in call.given[2:] if isinstance(one, str)), "left")
        if BUTTONS.get(str(button), button) != "left":
            raise Unmapped(f"no action of ours is a drag with the {button} button")
        if call.argument("mouseDownUp") is False:
            raise Unmapped("a drag that presses no button")
        return _drag(pointer, _point(call, fraction, "x", "y", 0))
    if name == "swipe":
        return _swipe(call, fraction)
    if name in ("press", "hotkey"):
        return {"type": "hotkey", "key": _keys(call)}
    if name == "response":
        return {"type": "finished", "content": call.argument("answer", 0)}
    if name == "terminate":
        content = call.argument("info", 1) or call.argument("answer") or ""
        if call.argument("status", 0) == "failure":
            content = f"{FAILED}: {content}" if content else FAILED
        return {"type": "finished", "content": content}
    raise Unmapped(f"no action of ours is {name}")


FAILED = "failure"
"""What a terminal action says, or begins with before a colon, that was written as `terminate(status='failure')`."""


def _at(point: Point | None, kind: str, **more: object) -> dict[str, object]:
    if point is None:
        raise Unmapped(f"{kind} at no known place")
    return {"type": kind, "x": point[0], "y": point[1], **more}


def _click(call: Call, point: Point | None) -> dict[str, object]:
    if call.function == "long_press":
        return _at(point, "long_press")
    side, count = USUAL.get(call.function, ("left", 1))
    given = call.argument("button") or next((one for one in call.given[2:] if isinstance(one, str)), side)
    clicks = call.argument("clicks", 2 if call.function == "click" else None)
    count = count if clicks is None else clicks
    kind = next((ours for theirs, ours in CLICKS.items() if theirs == (BUTTONS.get(str(given), given), count)), None)
    if kind is None:
        raise Unmapped(f"no action of ours is {count} clicks of the {given} button")
    return _at(point, kind)


def _scroll(call: Call, point: Point | None) -> dict[str, object]:
    amount = next((one for name in ("clicks", "amount", "page") if (one := call.argument(name, 0)) is not None), 0)
    if not isinstance(amount, int | float) or not amount:
        raise Unmapped(f"a scroll by {amount!r}")
    ways = ("right", "left") if call.function == "hscroll" else ("up", "down")
    return _at(point, "scroll", direction=ways[0] if amount > 0 else ways[1])


def _drag(start: Point | None, end: Point | None) -> dict[str, object]:
    if start is None or end is None:
        raise Unmapped("a drag from or to no known place")
    return {"type": "drag", "x": start[0], "y": start[1], "to_x": end[0], "to_y": end[1]}


def _swipe(call: Call, fraction: ToFraction) -> dict[str, object]:
    """A finger's way; by direction, as far as `amount` of the screen, from its start or around the middle."""
    start, end = (_pair(call.argument(name, place), fraction) for place, name in enumerate(("from_coord", "to_coord")))
    if start and end:
        return _drag(start, end)
    amount = call.argument("amount", 3)
    amount = 0.5 if amount is None else amount
    signs = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
    sign = signs.get(str(call.argument("direction", 2) or "up"))
    if sign is None or not isinstance(amount, int | float):
        raise Unmapped("a swipe in no direction")
    begin = start or (0.5 - sign[0] * amount / 2, 0.5 - sign[1] * amount / 2)
    reached = (begin[0] + sign[0] * amount, begin[1] + sign[1] * amount)
    return _drag(_within(begin), _within(reached))


def _within(point: Point) -> Point:
    return min(1.0, max(0.0, point[0])), min(1.0, max(0.0, point[1]))


def _pair(given: object, fraction: ToFraction) -> Point | None:
    if given is None:
        return None
    pair = items_of(given)
    if pair is None or len(pair) != 2:
        raise Unmapped(f"{given!r} is no point")
    return _point(Call("", "", tuple(pair), {}), fraction, "x", "y", 0)


def _keys(call: Call) -> str:
    """The keys of a `press` or a `hotkey`, as ours are written."""
    given: Sequence[Any] = call.given or [call.named.get("keys", call.named.get("key", call.named.get("args")))]
    if call.function == "press":
        if call.argument("presses", 1) not in (None, 1):
            raise Unmapped("a key pressed several times")
        given = given[:1]
    keys: Sequence[Any] = (items_of(given[0]) if len(given) == 1 else None) or given
    if call.function == "press" and len(keys) != 1:
        raise Unmapped("keys pressed one after the other")
    try:
        return pressed([key if isinstance(key, str) else "" for key in keys])
    except ValueError as error:
        raise Unmapped(f"{keys!r} are no keys: {error}") from error


def _key(name: object) -> str:
    try:
        return key_of(name if isinstance(name, str) else "")
    except ValueError as error:
        raise Unmapped(str(error)) from error


def _call(name: str, *given: object, **named: object) -> str:
    written = [repr(one) for one in given] + [f"{key}={value!r}" for key, value in named.items()]
    return f"{name}({', '.join(written)})"


def _agentnet(kind: str, of: Mapping[str, Any]) -> str | None:
    """pyautogui's call, or AgentNet's own of module `computer`; None where there is none."""
    if kind == "scroll":
        down = of["direction"] in ("down", "left")
        name = "hscroll" if of["direction"] in ("left", "right") else "scroll"
        wheel = _call(f"pyautogui.{name}", -SCROLL if down else SCROLL)
        return f"{_call('pyautogui.moveTo', x=of['x'], y=of['y'])}\n{wheel}"
    if kind == "wait":
        return "computer.wait()"
    if kind == "finished":
        return _terminate("computer.", of["content"])
    return _shared(kind, of, "pyautogui.")


def _scalecua(kind: str, of: Mapping[str, Any]) -> str | None:
    if kind == "scroll" and of["direction"] in ("up", "down"):
        return _call("scroll", clicks=-SCROLL if of["direction"] == "down" else SCROLL, x=of["x"], y=of["y"])
    if kind == "finished":
        return _terminate("", of["content"])
    if kind == "long_press":
        return _call("long_press", **of)
    plain = {ours: theirs for theirs, ours in PLAIN.items() if theirs != "sleep"}
    if kind in plain:
        return _call(plain[kind])
    if kind == "open_app":
        return _call("open_app", **of)
    if kind == "navigate":
        return _call("open_url", url=of["content"])
    return _shared(kind, of, "")


def _shared(kind: str, of: Mapping[str, Any], module: str) -> str | None:
    """What both styles have, below a module or none."""
    names = {"click": "click", "left_double": "doubleClick", "right_single": "rightClick"}
    if kind in names:
        return _call(module + names[kind], **of)
    if kind == "drag":
        end = _call(f"{module}dragTo", x=of["to_x"], y=of["to_y"], button="left")
        return f"{_call(f'{module}moveTo', x=of['x'], y=of['y'])}\n{end}"
    if kind == "type":
        return _call(f"{module}write", message=of["content"])
    if kind == "hotkey":
        keys = of["key"].split(" ")
        return _call(f"{module}hotkey", *keys) if len(keys) > 1 else _call(f"{module}press", keys=keys[0])
    if kind in ("press", "release"):
        return _call(module + ("keyDown" if kind == "press" else "keyUp"), key=of["key"])
    return None


def _terminate(module: str, content: str) -> str:
    failed, _, info = content.partition(": ")
    if failed == FAILED:
        return _call(f"{module}terminate", status="failure", **({"info": info} if info else {}))
    return _call(f"{module}terminate", status="success", **({"info": content} if content else {}))
