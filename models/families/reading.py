"""How a reply in UI-TARS's text is read: leniently, never raising for what a model may write, in linear time.

The public parsers differ among themselves; what is read here is what any of them reads, and where they disagree
docs/families.md says who is followed. The last `Action:` counts that is followed by a call (also inline, and with a
full-width colon); behind it stand one or several calls. Calls without their last bracket, arguments in brackets, box
tokens, `<point>` or `<bbox>`, and UI-TARS-2's XML are all read.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from pydantic import ValidationError

from schemas.action import Action, Click, action_of
from schemas.keyboard import names_of, single, together
from schemas.problem import named_problem

Sides = tuple[float, float]
"""How many units of coordinates a screen is wide and high (`CoordinateSpace.sides`)."""
MOST_LABELS = 16
"""Labels of a reply that are looked at, its first and its last ones, so that reading takes time as its length."""

_UNESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n"}
_QUOTED = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
_PLACE = r"[(\[][-\d.,\s]*[)\]]|<point>[-\d.,\s]*</point>"
_VALUE = rf"(?:{_QUOTED}|{_PLACE})"
_ARGUMENT = re.compile(rf"(\w+)\s*=\s*({_VALUE})\s*(?:,\s*|(?=\))|\Z)", re.DOTALL)
_CALL = re.compile(rf"\s*(\w+)\(\s*((?:\w+\s*=\s*{_VALUE}\s*(?:,\s*|(?=\))|\Z))*)(?:\)|\Z)", re.DOTALL)
_LOOSE_CALL = re.compile(r"""\s*(\w+)\((\w+)\s*=\s*(['"])(.*)\3\)?\s*$""", re.DOTALL)
_LABEL = re.compile(r"(^[^\S\n]*)?\bAction[:：][^\S\n]*", re.MULTILINE)
_THOUGHT = re.compile(r"(Thought|Reflection|Action_Summary):[ \t]*")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NEVER = r"(?:_never_used_\w+)?"
"""What some of UI-TARS-2's servers write behind the names of its tags."""
_TAG = re.compile(
    rf"<(?:function{_NEVER}(?:=|\s+name=)['\"]?(?P<call>\w+)['\"]?"
    rf"|parameter{_NEVER}(?:=|\s+name=)['\"]?(?P<argument>\w+)['\"]?"
    rf"|(?P<closed>/(?:parameter|function|seed:tool_call)){_NEVER})\s*>"
)
_OPENED = re.compile(r"<seed:tool_call\w*>\s*\Z")
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL)
_BEFORE = 100
"""Characters before a call in which its block may open."""
_THINKS = re.compile(r"</?think\w*>|</?seed:\w+>")
_THINK_END = re.compile(r"</think\w*>")
_ENVIRONMENT = re.compile(r"<computer_env>\s*\Z")
_BARE_POINT = re.compile(r"\s*[(\[]\s*-?\d+(?:\.\d+)?\s*,\s*-?\d+(?:\.\d+)?\s*[)\]]\s*\Z")

_POINTS = {"start_box": "", "start_point": "", "point": "", "end_box": "to_", "end_point": "to_"}
_NAMES = {"left_single": "click", "select": "drag", "swipe": "drag", "keydown": "press", "keyup": "release"}
"""Actions of the public parsers under other names."""
_KEYS = {("type", "text"): "content", ("hotkey", "hotkey"): "key"}
"""Arguments under other names."""
_UNREAD = {("long_press", "time"), ("wait", "time"), ("call_user", "content")}
"""Arguments that say what an action of ours does not know."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply holds."""

    thought: str = ""
    text: str = ""
    """The first action as it was written."""
    actions: tuple[Action, ...] = field(default=())
    error: str | None = None
    """Why there is no action."""


def read_text(text: str, sides: Sides, pointing: bool = False) -> Reading:
    """The thought and the actions of a reply.

    Args:
        text: the reply.
        sides: how many units of its coordinates the screen is wide and high.
        pointing: whether two numbers alone are a click, as templates for grounding ask for them.
    """
    if "<function" in text and (found := _TAG.search(text)) and found["call"]:
        near = max(0, found.start() - _BEFORE)
        opened = _OPENED.search(text[near : found.start()])
        begin = near + opened.start() if opened else found.start()
        thought = _THINKS.sub("", text[:begin]).strip()
        return _read(thought, text[begin:].strip(), list(_tagged(text, found.start())), sides)
    thought, block = _parts(text)
    if pointing and _BARE_POINT.match(block):
        return _read(thought, block.strip(), [_Call("click", {"point": block})], sides)
    calls = list(_calls(block))
    if not calls and (answer := _ANSWER.search(text)):
        thought = _THINKS.sub("", text[: answer.start()]).strip()
        return _read(thought, answer[0].strip(), [_Call("finished", {"content": answer[1].strip()})], sides)
    shown = block.strip()
    if calls and calls[0].end:
        shown = block[: calls[0].end].strip()
    return _read(thought, shown, calls, sides)


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    arguments: Mapping[str, str]
    end: int = 0
    """Where it ends in its block."""
    twice: str = ""
    """An argument that it has twice."""


def _read(thought: str, shown: str, calls: list[_Call], sides: Sides) -> Reading:
    """The reading of these calls; one that makes no sense ends the list, and is the error if it is the first."""
    actions: list[Action] = []
    problem = f"no action in {shown[:80]!r}"
    for call in calls:
        try:
            actions += _actions(call, sides)
        except ValidationError as error:
            problem = f"{named_problem(error)} in {shown[:80]!r}"
            break
        except ValueError as error:
            problem = f"{error} in {shown[:80]!r}"
            break
    return Reading(thought, shown, tuple(actions), None if actions else problem)


def _parts(text: str) -> tuple[str, str]:
    """What stands before the actions, and the block of actions that counts."""
    found = _LABEL.finditer(text)
    labels = [*islice(found, MOST_LABELS // 2), *deque(found, maxlen=MOST_LABELS // 2)]
    first: int | None = None
    begin, inside = -1, -1
    for label in labels:
        if label.start() < inside:
            continue
        held = list(_calls(text[label.end() :], only_first=True))
        if label[1] is None and not held:
            continue  # inline and without a call: prose
        first = label.start() if first is None else first
        begin = label.end()
        inside = begin + (held[0].end if held else 0)
    if first is None:
        return (_thought(text), "") if _THOUGHT.match(text.lstrip()) else ("", text.strip())
    return _thought(text[:first]), text[begin:].strip()


def _calls(block: str, only_first: bool = False) -> Iterator[_Call]:
    """The calls that a block begins with, one after the other."""
    at, matched = 0, _CALL.match(block)
    if matched is None:
        piece = block.split("\n\n")[0]
        if loose := _LOOSE_CALL.match(piece):
            yield _Call(loose[1], {loose[2]: _unescaped(loose[4])}, loose.end())
        return
    while matched is not None:
        at = matched.end()
        arguments: dict[str, str] = {}
        twice = ""
        for key, value in _ARGUMENT.findall(matched[2]):
            twice = twice or (key if key in arguments else "")
            arguments[key] = _unescaped(value[1:-1]) if value[0] in "'\"" else value
        yield _Call(matched[1], arguments, at, twice)
        matched = None if only_first else _CALL.match(block, at)


def _tagged(text: str, start: int) -> Iterator[_Call]:
    """The calls of UI-TARS-2's XML."""
    name, argument, begin = "", "", 0
    arguments: dict[str, str] = {}
    for tag in _TAG.finditer(text, start):
        if argument:
            arguments[argument] = _value(text[begin : tag.start()])
            argument = ""
        if tag["argument"]:
            argument, begin = tag["argument"], tag.end()
        elif tag["call"] or tag["closed"] != "/parameter":
            if name:
                yield _Call(name, arguments)
            name, arguments = tag["call"] or "", {}
    if argument:
        arguments[argument] = _value(text[begin:])
    if name:
        yield _Call(name, arguments)


def _value(text: str) -> str:
    """What stands between the tags of an argument, on lines of its own or not; a \\n at its end is a new line."""
    value = text.strip()
    return value[:-2] + "\n" if value.endswith("\\n") else value


def _actions(call: _Call, sides: Sides) -> list[Action]:
    """What a call means, mostly one action; ValueError where it means none."""
    if call.twice:
        raise ValueError(f"argument {call.twice!r} twice")
    name = _NAMES.get(call.name, call.name)
    fields: dict[str, object] = {"type": name}
    for key, value in call.arguments.items():
        if (name, key) in _UNREAD:
            continue
        prefix = _POINTS.get(key)
        found = (_KEYS.get((name, key), key),) if prefix is None else (f"{prefix}x", f"{prefix}y")
        if any(one in fields for one in found):
            raise ValueError(f"argument {key!r} twice")
        fields.update(zip(found, (value,) if prefix is None else place_of(value, sides), strict=True))
    if (
        name != "drag" and {"to_x", "to_y"} <= fields.keys() and not {"x", "y"} & fields.keys()
    ):  # a box is a box, whatever it is called
        fields |= {"x": fields.pop("to_x"), "y": fields.pop("to_y")}
    if name == "scroll":
        if "to_x" in fields and "direction" not in fields:
            fields["type"] = "drag"  # mobile: a finger that moves from one place to another
        elif "x" not in fields:
            fields |= {"x": 0.5, "y": 0.5}  # wherever the pointer is, for which our action has no word
    if name in ("hotkey", "press", "release") and isinstance(key := fields.get("key"), str):
        fields["key"] = together(names_of(key)) if name == "hotkey" else single(key)
    if name == "type" and {"x", "y"} <= fields.keys():
        click = Click.model_validate({"x": fields.pop("x"), "y": fields.pop("y")})
        return [click, action_of(fields)]
    return [action_of(fields)]


def place_of(text: str, sides: Sides) -> tuple[float, float]:
    """The place, in [0, 1], that two coordinates or the corners of a box stand for.

    Raises:
        ValueError: it is neither.
    """
    numbers = [float(number) for number in _NUMBER.findall(text[:200])]
    if len(numbers) not in (2, 4):
        raise ValueError(f"{text[:80]!r} is neither a point nor a box")
    x, y = (sum(numbers[axis::2]) / len(numbers[axis::2]) for axis in (0, 1))
    return x / sides[0], y / sides[1]


def _thought(text: str) -> str:
    """What stands before the action, without its label, or without both of a reflection's; what a model first thought
    between tags only where nothing follows it."""
    text = _ENVIRONMENT.sub("", text)
    closed = deque(_THINK_END.finditer(text), maxlen=1)
    rest = text[closed[0].end() :] if closed else text
    text = _THINKS.sub("", rest if rest.strip() else text)
    label = _THOUGHT.search(text)
    return _THOUGHT.sub("", text, count=1 if label and label[1] == "Thought" else 2).strip()


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _UNESCAPES.get(match[1], match[0]), text, flags=re.DOTALL)
