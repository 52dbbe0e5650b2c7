"""Writes and reads actions in the three public text dialects of UI-TARS (arXiv 2501.12326, Table 1).

`box_v1`  click(start_box='(480,520)')                     UI-TARS 1.0 and 1.5
`point`   click(point='<point>480 520</point>')            Doubao, UI-TARS-1.5 template
`bbox4`   click(start_box='[480, 520, 480, 520]')          desktop SDK; the point is the mean of the corners

In a model's text, a coordinate is a thousandth of the screen or a pixel of the picture that the model sees
(`models.families.screen`). The dialect decides how actions are written. Reading accepts all dialects
(`models.families.reading`), as the public parser does.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

from common.text import storable
from models.completion import Completion
from models.families.code.arguments import written_seconds
from models.families.reading import WIDE, ParsedReply, Sides, read_text
from models.families.thinking import between, read_reply, readable
from schemas.action import Action

Dialect = Literal["box_v1", "point", "bbox4"]
DIALECTS: tuple[str, ...] = get_args(Dialect)
THOUSANDTHS = (1000.0, 1000.0)
"""How many thousandths a screen is wide and high."""

_ESCAPES = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n"}


def format_action(action: Action, dialect: str = "box_v1", grid: int = 1, sides: Sides = THOUSANDTHS) -> str:
    """Writes an action as text; coordinates are rounded to whole multiples of `grid`.

    Args:
        action: the action to write.
        dialect: name of the text form.
        grid: smallest difference between two written coordinates, in units.
        sides: width and height of the screen, in units of the coordinates.

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
    for key, value in fields.items():
        if isinstance(value, Mapping):
            arguments.append(f"{key}='{_escape(json.dumps(value, ensure_ascii=False))}'")
        elif isinstance(value, str) and (value or action.type != "finished"):
            arguments.append(f"{key}='{_escape(value)}'")
        elif not isinstance(value, str):
            arguments.append(f"{key}={written_seconds(value, 0)}")
    return f"{action.type}({', '.join(arguments)})"


def format_actions(
    actions: Sequence[Action], dialect: str = "box_v1", grid: int = 1, sides: Sides = THOUSANDTHS
) -> str:
    """Writes several actions as `format_action`, in order, with an empty line between two actions."""
    return "\n\n".join(format_action(action, dialect, grid, sides) for action in actions)


def format_reply(thought: str, action_text: str) -> str:
    """Writes a whole reply: `Thought: ...` and `Action: ...` on two lines.

    If the thought would be read differently, for example because it contains a draft of an action, it is written
    between tags.
    """
    bare = f"Action: {action_text}"
    forms = (lambda thought: f"Thought: {thought}\n{bare}", lambda thought: f"{between(thought)}{bare}")
    return readable(thought, bare, forms, lambda answer: read_text(answer, WIDE))


def parse_reply(text: str, sides: Sides = THOUSANDTHS) -> Completion:
    """Makes a completion of a text and reads it (`read_completion`)."""
    return read_completion(Completion(text), sides)


def read_completion(completion: Completion, sides: Sides = THOUSANDTHS) -> Completion:
    """Reads thought and actions from the completion's text; the first call's actions become its actions.

    Never raises for any text of a model.

    Args:
        completion: its text has `Thought: ...` and `Action: ...`, also after `Reflection:` or `Action_Summary:`; or a
            bare action.
        sides: width and height of the screen, in units of the coordinates.
    """
    return with_reading(completion, read_reply(completion.text, lambda answer: read_text(answer, sides)))


def with_reading(completion: Completion, found: ParsedReply) -> Completion:
    """Adds the result of reading a completion to it; its texts can be stored."""
    return replace(
        completion,
        text=storable(completion.text),
        thought=storable(found.thought),
        action_text=storable(found.text),
        actions=found.actions[: found.parts],
        dropped=found.actions[found.parts :],
        error=storable(found.error) if found.error else found.error,
        unused=tuple(map(storable, found.unused)),
    )


def _point(x: int, y: int, dialect: str) -> str:
    written = {"box_v1": f"({x},{y})", "point": f"<point>{x} {y}</point>", "bbox4": f"[{x}, {y}, {x}, {y}]"}
    return written[dialect]


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)
