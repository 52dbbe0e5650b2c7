"""How actions are written and read: the three public text dialects of UI-TARS (arXiv 2501.12326, Table 1).

`box_v1`  click(start_box='(480,520)')                     UI-TARS 1.0 and 1.5
`point`   click(point='<point>480 520</point>')            Doubao, UI-TARS-1.5 template
`bbox4`   click(start_box='[480, 520, 480, 520]')          desktop SDK; the point is the mean of the corners

On the wire a coordinate is a thousandth of the screen or a pixel of the picture that the model is shown
(`models.families.screen`). A dialect rules the writing; reading takes any of them, as the public parser does.
"""

import re
from dataclasses import replace
from typing import Literal, get_args

from pydantic import ValidationError

from models.completion import Completion
from schemas.action import Action, action_of

Dialect = Literal["box_v1", "point", "bbox4"]
DIALECTS: tuple[str, ...] = get_args(Dialect)
THOUSANDTHS = (1000.0, 1000.0)
"""How many thousandths a screen is wide and high."""
Sides = tuple[float, float]
"""How many units of coordinates a screen is wide and high (`CoordinateSpace.sides`)."""

_ESCAPES = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n"}
_UNESCAPES = {written[1]: raw for raw, written in _ESCAPES.items()}
_QUOTED = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
_ARGUMENT = re.compile(rf"(\w+)\s*=\s*({_QUOTED})\s*(?:,\s*|(?=\)))", re.DOTALL)
_CALL = re.compile(rf"\s*(\w+)\(\s*((?:\w+\s*=\s*(?:{_QUOTED})\s*(?:,\s*|(?=\))))*)\)", re.DOTALL)
_LOOSE_CALL = re.compile(r"""\s*(\w+)\((\w+)\s*=\s*(['"])(.*)\3\)\s*$""", re.DOTALL)
_ACTION = re.compile(r"(?:^|\n)[^\S\n]*Action:[ \t]*")
_LABEL = re.compile(r"(Thought|Reflection|Action_Summary):[ \t]*")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_POINTS = {"start_box": "", "start_point": "", "point": "", "end_box": "to_", "end_point": "to_"}


def format_action(action: Action, dialect: str = "box_v1", grid: int = 1, sides: Sides = THOUSANDTHS) -> str:
    """An action as text; coordinates are rounded to whole multiples of `grid`.

    Args:
        action: what to write.
        dialect: how.
        grid: units between coordinates that can be told apart.
        sides: how many units the screen is wide and high.

    Raises:
        ValueError: no such dialect.
    """
    if dialect not in DIALECTS:
        raise ValueError(f"unknown dialect {dialect!r}; one of {', '.join(DIALECTS)}")
    fields = action.model_dump(exclude={"type"})
    arguments = []
    for prefix, box, point in (("", "start_box", "point"), ("to_", "end_box", "end_point")):
        if f"{prefix}x" in fields:
            x, y = (fields.pop(prefix + axis) for axis in "xy")
            x, y = (round(place * side / grid) * grid for place, side in zip((x, y), sides, strict=True))
            key = box if dialect != "point" else "start_point" if action.type == "drag" and not prefix else point
            arguments.append(f"{key}='{_point(x, y, dialect)}'")
    arguments += [f"{key}='{_escape(value)}'" for key, value in fields.items() if value or action.type != "finished"]
    return f"{action.type}({', '.join(arguments)})"


def format_reply(thought: str, action_text: str) -> str:
    """A whole reply: `Thought: ...` and `Action: ...` on two lines."""
    return f"Thought: {thought}\nAction: {action_text}" if thought else f"Action: {action_text}"


def parse_reply(text: str, sides: Sides = THOUSANDTHS) -> Completion:
    """The completion of this text, read (`read_completion`)."""
    return read_completion(Completion(text), sides)


def read_completion(completion: Completion, sides: Sides = THOUSANDTHS) -> Completion:
    """The completion with the thought and the action of its text; of several actions the first. Never raises for what
    a model may write.

    Args:
        completion: `Thought: ...` and `Action: ...`, also after `Reflection:` or `Action_Summary:`, or a bare action.
        sides: how many units of its coordinates the screen is wide and high.
    """

    def read(action_text: str, action: Action | None, error: str | None = None) -> Completion:
        return replace(completion, thought=thought, action_text=action_text, action=action, error=error)

    parts = _ACTION.split(completion.text, maxsplit=1)
    thought = _thought(parts[0]) if len(parts) == 2 else ""
    action_text = parts[-1].strip()
    call = _CALL.match(action_text) or _LOOSE_CALL.match(action_text.split("\n\n")[0])
    if call is None:
        return read(action_text, None, f"no action in {action_text[:80]!r}")
    action_text = call.group(0).strip()
    try:
        return read(action_text, action_of(_fields(call, sides)))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return read(action_text, None, f"{where or 'action'}: {first['msg']} in {action_text[:80]!r}")
    except ValueError as error:
        return read(action_text, None, f"{error} in {action_text[:80]!r}")


def _thought(text: str) -> str:
    """What stands before the action, without its label, or without both of a reflection's."""
    label = _LABEL.search(text)
    return _LABEL.sub("", text, count=1 if label and label[1] == "Thought" else 2).strip()


def _point(x: int, y: int, dialect: str) -> str:
    written = {"box_v1": f"({x},{y})", "point": f"<point>{x} {y}</point>", "bbox4": f"[{x}, {y}, {x}, {y}]"}
    return written[dialect]


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _UNESCAPES.get(match[1], match[0]), text, flags=re.DOTALL)


def _fields(call: re.Match[str], sides: Sides) -> dict[str, object]:
    """The fields of an action from a matched call; ValueError for arguments that cannot be read."""
    fields: dict[str, object] = {"type": call.group(1)}
    loose = call.re is _LOOSE_CALL
    arguments = [(call.group(2), call.group(4))] if loose else _arguments(call.group(2))
    for key, value in arguments:
        names = (f"{_POINTS[key]}x", f"{_POINTS[key]}y") if key in _POINTS else (key,)
        if any(name in fields for name in names):
            raise ValueError(f"argument {key!r} twice")
        values = _coordinates(value, sides) if key in _POINTS else (_unescape(value),)
        fields.update(zip(names, values, strict=True))
    return fields


def _arguments(text: str) -> list[tuple[str, str]]:
    return [(key, quoted[1:-1]) for key, quoted in _ARGUMENT.findall(text + ")")]


def _coordinates(text: str, sides: Sides) -> tuple[float, float]:
    """The point, in [0, 1], that two coordinates or the corners of a box stand for."""
    numbers = [float(number) for number in _NUMBER.findall(text)]
    if len(numbers) not in (2, 4):
        raise ValueError(f"{text[:80]!r} is neither a point nor a box")
    x, y = (sum(numbers[axis::2]) / len(numbers[axis::2]) for axis in (0, 1))
    return x / sides[0], y / sides[1]
