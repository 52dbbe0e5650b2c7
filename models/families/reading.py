"""How a reply in UI-TARS's text is read: leniently, never raising for what a model may write, in linear time.

The public parsers differ among themselves; what is read here is what any of them reads, and where they disagree
docs/families.md says who is followed. The last `Action:` counts that is followed by a call (also inline, in Markdown
and with a full-width colon); behind it stand one or several calls. Calls without their last bracket, arguments in
brackets, box tokens, `<point>` or `<bbox>`, and UI-TARS-2's XML are all read. Thinking between tags is split off
before (`models.families.thinking`).
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from pydantic import ValidationError

from schemas.action import TYPES, Action, Click, Hotkey, action_of
from schemas.keyboard import names_of, single, together
from schemas.problem import named_problem

Sides = tuple[float, float]
"""How many units of coordinates a screen is wide and high (`CoordinateSpace.sides`)."""
MOST_LABELS = 16
"""Labels of a reply that are looked at, its first and its last ones, so that reading takes time as its length."""

_UNESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n"}
_QUOTED = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
_PLACE = r"[(\[][-\d.,\s]*[)\]]|<point>[-\d.,\s]*</point>"
_BARE = r"-?\d+(?:\.\d+)?|[Tt]rue|[Ff]alse|None|null"
_VALUE = rf"(?:{_QUOTED}|{_PLACE}|{_BARE})"
_ARGUMENT = re.compile(rf"(\w+)\s*=\s*({_VALUE})\s*(?:,\s*|(?=\))|\Z)", re.DOTALL)
_CALL = re.compile(rf"\s*(\w+)\(\s*((?:\w+\s*=\s*{_VALUE}\s*(?:,\s*|(?=\))|\Z))*)(?:\)|\Z)", re.DOTALL)
_LOOSE_CALL = re.compile(r"""\s*(\w+)\((\w+)\s*=\s*(['"])(.*)\3\)?\s*$""", re.DOTALL)
_MARKS = r"(?:\*\*|__)?"
"""Markdown's marks of a bold label."""
_LABEL = re.compile(rf"(^[^\S\n]*)?{_MARKS}\bAction{_MARKS}[:：]{_MARKS}[^\S\n]*", re.MULTILINE | re.IGNORECASE)
_THOUGHT = re.compile(rf"{_MARKS}\b(Thought|Reflection|Action_Summary){_MARKS}[:：]{_MARKS}[ \t]*", re.IGNORECASE)
DRAFT = re.compile(_LABEL.pattern, re.IGNORECASE)
"""What begins an action, also within a thought."""
_FENCE = re.compile(r"\s*`{1,3}(?:[a-z]+(?=\n))?\s*")
"""What opens a block or a span of code."""
_FENCES = re.compile(r"\A```\w*|```\w{0,20}\Z")
"""The same around a thought, whose block goes on."""
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
_SEED = re.compile(r"</?seed:\w+>")
_ENVIRONMENT = re.compile(r"<computer_env>\s*\Z")
_BARE_POINT = re.compile(r"\s*[(\[]\s*-?\d+(?:\.\d+)?\s*,\s*-?\d+(?:\.\d+)?\s*[)\]]\s*\Z")

_POINTS = {"start_box": "", "start_point": "", "point": "", "end_box": "to_", "end_point": "to_"}
_NAMES = {"left_single": "click", "select": "drag", "swipe": "drag", "keydown": "press", "keyup": "release"}
"""Actions of the public parsers under other names."""
_KEYS = {("type", "text"): "content", ("hotkey", "hotkey"): "key"}
"""Arguments under other names."""
ENTERS, CLEARS = ("press_enter", "enter"), ("delete_existing_text", "clear")
"""Arguments of typing that press enter after it, and that empty the field before it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply holds."""

    thought: str = ""
    text: str = ""
    """The first action as it was written."""
    actions: tuple[Action, ...] = field(default=())
    error: str | None = None
    """Why there is no action."""
    parts: int = 1
    """How many of the actions the first call stands for: a click and typing are two."""
    unused: tuple[str, ...] = ()
    """Arguments of the first call for which our actions have no field, each as `name=value`."""
    tagged: bool = False
    """Whether the grammar has thoughts between tags, so that thinking and what stands behind it are one thought."""


class Arguments:
    """The arguments of a call by JSON, which keeps count of those that nothing reads.

    Args:
        given: as the model wrote them; one that is null is as one that is not there.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._left = {key: value for key, value in given.items() if value is not None}

    def take(self, *names: str) -> Any:
        """The first of these arguments that is there, else None; all of them count as read."""
        found = [self._left.pop(name) for name in names if name in self._left]
        return found[0] if found else None

    @property
    def unused(self) -> tuple[str, ...]:
        """What was not read, each as `name=value`."""
        return tuple(f"{key[:40]}={str(value)[:80]}" for key, value in self._left.items())


def read_text(text: str, sides: Sides, pointing: bool = False) -> Reading:
    """The thought and the actions of a reply.

    Args:
        text: the reply.
        sides: how many units of its coordinates the screen is wide and high.
        pointing: whether two numbers alone are a click, as templates for grounding ask for them.
    """
    tagged = _read_tagged(text, sides) if "<function" in text else None
    if tagged is not None and (tagged.actions or not _LABEL.search(text)):
        return tagged
    thought, block = _parts(text)
    if pointing and _BARE_POINT.match(block):
        return _read(thought, block.strip(), [_Call("click", {"point": block})], sides)
    calls = list(_calls(block))
    if not calls and (answer := _ANSWER.search(text)):
        thought, done = _SEED.sub("", text[: answer.start()]), _Call("finished", {"content": answer[1].strip()})
        return replace(_read(thought, answer[0].strip(), [done], sides), tagged=True)
    shown = block.strip()
    if calls and calls[0].end:
        shown = block[: calls[0].end].strip()
    return _read(thought, shown, calls, sides)


def _read_tagged(text: str, sides: Sides) -> Reading | None:
    """The reading of UI-TARS-2's XML; None where no call begins."""
    found = _TAG.search(text)
    if found is None or not found["call"]:
        return None
    near = max(0, found.start() - _BEFORE)
    opened = _OPENED.search(text[near : found.start()])
    begin = near + opened.start() if opened else found.start()
    read = _read(_SEED.sub("", text[:begin]), text[begin:].strip(), list(_tagged(text, found.start())), sides)
    return replace(read, tagged=True)


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    arguments: Mapping[str, object]
    end: int = 0
    """Where it ends in its block."""
    twice: str = ""
    """An argument that it has twice."""


def _read(thought: str, shown: str, calls: list[_Call], sides: Sides) -> Reading:
    """The reading of these calls; one that makes no sense ends the list, and is the error if it is the first."""
    actions: list[Action] = []
    parts, unused = 1, list[str]()
    problem = f"no action in {shown[:80]!r}"
    for call in calls:
        try:
            found, left = _actions(call, sides)
            if not actions:
                parts, unused = len(found), left
            actions += found
        except ValidationError as error:
            problem = f"{named_problem(error)} in {shown[:80]!r}"
            break
        except ValueError as error:
            problem = f"{error} in {shown[:80]!r}"
            break
    return Reading(thought, shown, tuple(actions), None if actions else problem, parts, tuple(unused))


def _parts(text: str) -> tuple[str, str]:
    """What stands before the actions, and the block of actions that counts."""
    found = _LABEL.finditer(text)
    labels = [*islice(found, MOST_LABELS // 2), *deque(found, maxlen=MOST_LABELS // 2)]
    first: int | None = None
    begin, inside = -1, -1
    for label in labels:
        if label.start() < inside:
            continue
        start = _after_fence(text, label.end())
        held = list(_calls(text[start:], only_first=True))
        if label[1] is None and not held:
            continue  # inline and without a call: prose
        first = label.start() if first is None else first
        begin = start
        inside = begin + (held[0].end if held else 0)
    if first is None:
        return (_thought(text), "") if _THOUGHT.match(text.lstrip()) else ("", text[_after_fence(text, 0) :].strip())
    return _thought(text[:first]), text[begin:].strip()


def _after_fence(text: str, start: int) -> int:
    """Where the text goes on that starts there, perhaps with a fence or a backtick of Markdown."""
    fence = _FENCE.match(text, start)
    return fence.end() if fence else start


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
        arguments: dict[str, object] = {}
        twice = ""
        for key, value in _ARGUMENT.findall(matched[2]):
            twice = twice or (key if key in arguments else "")
            arguments[key] = _literal(value)
        yield _Call(matched[1], arguments, at, twice)
        matched = None if only_first else _CALL.match(block, at)


def _tagged(text: str, start: int) -> Iterator[_Call]:
    """The calls of UI-TARS-2's XML."""
    name, argument, begin = "", "", 0
    arguments: dict[str, object] = {}
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


def _actions(call: _Call, sides: Sides) -> tuple[list[Action], list[str]]:
    """What a call means, mostly one action, and its arguments that mean nothing to us; ValueError where it means no
    action."""
    if call.twice:
        raise ValueError(f"argument {call.twice!r} twice")
    name = _NAMES.get(call.name, call.name)
    fields: dict[str, object] = {"type": name}
    named: dict[str, tuple[str, ...]] = {}
    for key, value in call.arguments.items():
        prefix = _POINTS.get(key)
        named[key] = (_KEYS.get((name, key), key),) if prefix is None else (f"{prefix}x", f"{prefix}y")
        if any(one in fields for one in named[key]):
            raise ValueError(f"argument {key!r} twice")
        fields.update(zip(named[key], (value,) if prefix is None else place_of(str(value), sides), strict=True))
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
    before, after = list[Action](), {"x", "y"}
    if name == "type":
        place = (fields.pop("x"), fields.pop("y")) if {"x", "y"} <= fields.keys() else None
        enter, clear = (any(is_true(fields.pop(one, None)) for one in names) for names in (ENTERS, CLEARS))
        before, fields["content"] = typing(fields.get("content"), place, enter, clear)
        after |= {*ENTERS, *CLEARS}
    kind = TYPES.get(str(fields["type"]))
    known = {*kind.model_fields, *(after if name == "type" else ())} if kind else fields.keys()
    left = [key for key, names in named.items() if not known & {*names} and fields.keys() & {*names}]
    for key in left:
        for one in named[key]:
            fields.pop(one)
    return [*before, action_of(fields)], [f"{key}={_plain(call.arguments[key])}" for key in left]


def typing(
    content: object, place: tuple[object, object] | None, enter: bool, clear: bool
) -> tuple[list[Action], object]:
    """What is done before a text is typed, and the text.

    Args:
        content: the text as it was written; anything but a string is left to the action's own check.
        place: x and y in [0, 1] of a click that comes first.
        enter: whether enter is pressed behind it, which a new line at its end does.
        clear: whether the field is emptied first.
    """
    before: list[Action] = []
    if place is not None:
        before.append(Click.model_validate({"x": place[0], "y": place[1]}))
    if clear:
        before.append(Hotkey(key="ctrl a"))
        if content == "":
            before.append(Hotkey(key="backspace"))
    if enter and isinstance(content, str) and not content.endswith("\n"):
        content += "\n"
    return before, content


def is_true(value: object) -> bool:
    """Whether an argument is true, as JSON and Python write that, or as text."""
    return value is True or (isinstance(value, str) and value.strip().lower() == "true")


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
    """What stands before the action, without its label, or without both of a reflection's."""
    text = _FENCES.sub("", _SEED.sub("", _ENVIRONMENT.sub("", text)).strip())
    label = _THOUGHT.search(text)
    return _THOUGHT.sub("", text, count=1 if label and label[1].lower() == "thought" else 2).strip()


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:80]


def _literal(text: str) -> object:
    """What an argument is: a text, a number, true, false or none; a place stays as it was written."""
    if text[0] in "'\"":
        return _unescaped(text[1:-1])
    bare = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in bare:
        return bare[text.lower()]
    return float(text) if _NUMBER.fullmatch(text) else text


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _UNESCAPES.get(match[1], match[0]), text, flags=re.DOTALL)
