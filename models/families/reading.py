"""Reads a reply in UI-TARS's text: leniently, never raising for any text of a model, in linear time.

The public parsers differ. This parser reads everything that any of them reads; docs/families.md lists which parser it
follows where they disagree. Only the last `Action:` with one or more calls behind it counts. It may be inline, in
Markdown, or with a full-width colon. The parser also reads calls without their last bracket, arguments in brackets, box
tokens, `<point>` or `<bbox>`, and UI-TARS-2's XML. Thinking between tags is split off
"""

import ast
import json
import re
import textwrap
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from math import inf
from typing import Any, cast

from pydantic import ValidationError

from models.families.acting import LANGUAGES
from models.families.answers import Answer, answer_in, is_call, without_tags
from models.families.code.arguments import CLEARS, ENTERS, Arguments, meant
from models.families.code.calls import is_unset
from models.families.code.program import means_success
from models.families.xml import SEED, NamedCall
from schemas.action import TYPES, Action, Click, Hotkey, action_of
from schemas.keyboard import names_of, single, together, together_in
from schemas.problem import named_problem

Sides = tuple[float, float]
"""Width and height of a screen in units of coordinates (`CoordinateSpace.sides`)."""
WIDE: Sides = (1e9, 1e9)
"""Sides of a screen that contains every place, for reading that does not depend on the screen."""
MOST_LABELS = 16
"""Maximum labels that are considered in a reply, from its beginning and its end, so that reading takes linear time."""

_UNESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n"}
_QUOTED = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\""""
_PLACE = r"[(\[][-\d.,\s]*[)\]]|<point>[-\d.,\s]*</point>"
_LISTED = rf"\[\s*+(?:{_QUOTED})(?:\s*+,\s*+(?:{_QUOTED}))*+\s*+,?\s*+\]"
_BARE = r"-?\d+(?:\.\d+)?|[Tt]rue|[Ff]alse|None|null"
_VALUE = rf"(?:{_QUOTED}|{_PLACE}|{_LISTED}|{_BARE})"
_ARGUMENT = re.compile(rf"(\w+)\s*=\s*({_VALUE})\s*(?:,\s*|(?=\))|\Z)", re.DOTALL)
_NAMES = {
    "left_single": "click", "select": "drag", "swipe": "drag", "keydown": "press", "keyup": "release",
    "move_to": "move",
}  # fmt: skip
"""Actions by the other names that the public parsers use."""
_CALLED = rf"(\w+(?=\()|(?:{'|'.join((*TYPES, *_NAMES))})(?=[ \t]{{1,4}}\(\s*(?:\w+\s*=|\))))[ \t]{{0,4}}\("
"""A name and the bracket behind it, after a blank only if an action has the name and its arguments are named; `page
(see below)` is prose."""
_CALL = re.compile(rf"\s*{_CALLED}\s*((?:\w+\s*=\s*{_VALUE}\s*(?:,\s*|(?=\))|\Z))*)(?:\)|\Z)", re.DOTALL)
_LOOSE_CALL = re.compile(r"""\s*(\w+)[ \t]{0,4}\((\w+)\s*=\s*(['"])(.*)\3\)?\s*$""", re.DOTALL)
_NAMED_ONLY = re.compile(rf"({'|'.join((*TYPES, *_NAMES))})\(\s*[-\d'\"(\[]")
"""A call whose first argument has no name."""
_MARKS = r"(?:\*\*|__)?"
"""Markdown's marks of a bold label."""
_HEADING = r"(?:#{1,6}[^\S\n]+)?"
_LABEL = re.compile(
    rf"(^[^\S\n]*{_HEADING})?{_MARKS}\bAction{_MARKS}[:：]{_MARKS}[^\S\n]*", re.MULTILINE | re.IGNORECASE
)
_THOUGHT = re.compile(
    rf"(?:^{_HEADING})?{_MARKS}\b(Thought|Reflection|Action_Summary){_MARKS}[:：]{_MARKS}[ \t]*",
    re.MULTILINE | re.IGNORECASE,
)
_FENCE = re.compile(r"\s*`{1,3}(?:[a-z]+(?=\n))?\s*")
"""Start of a block or a span of code."""
_FENCE_AT = re.compile(r"^\s*+(?:(?:[-*+>]|\d{1,9}[.)])\s*+)*+```|```(?:\w[^`]*+)?+\s*+$")
"""A fence at the beginning of a line, perhaps after list marks, or at the end of a line, with language and options."""
_MARK = rf"```(?:{LANGUAGES})?+[^\S\n]*+"
_AROUND = re.compile(rf"\A\s*+```\w{{0,20}}\s*+(?={_THOUGHT.pattern})", re.IGNORECASE)
"""A fence before the label of a thought, if its block also contains the action."""
_FIRST_FENCE = re.compile(rf"\A\s*+{_MARK}(?:\n|\Z)", re.IGNORECASE)
_OPENING = re.compile(rf"[^\S\n]*+(?:{_MARKS}Action{_MARKS}[:：]{_MARKS}[^\S\n]*+)?(?:{_MARK})?", re.IGNORECASE)
"""A line that opens an action behind a thought: a label, a fence, or both."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_OPENED = re.compile(r"<seed:tool_call\w*>\s*\Z")
_BLOCK = re.compile(r"(?:^[^\S\n]*+|<seed:tool_call\w{0,80}>\s*+)(?=<function)", re.MULTILINE)
"""Text before a call that begins a line or a tool call; a call within a line is usually part of a sentence."""
_END = " \t\n`.;"
"""Characters around and behind a call that are no text."""
_BEFORE = 100
"""Maximum distance of a call from the opening of its block, in characters."""
_SEED = re.compile(r"</?seed:\w+>")
_ENVIRONMENT = re.compile(r"<computer_env>\s*\Z")
_BARE_POINT = re.compile(r"\s*[(\[]\s*-?\d+(?:\.\d+)?\s*,\s*-?\d+(?:\.\d+)?\s*[)\]]\s*\Z")

_POINTS = {"start_box": "", "start_point": "", "point": "", "end_box": "to_", "end_point": "to_"}
_KEYS = {("type", "text"): "content", ("hotkey", "hotkey"): "key"}
"""Arguments under other names."""
_STRINGS = r"'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\\n])*+'|\"(?:\\.|[^\"\\\n])*+\""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """Content of a reply."""

    thought: str = ""
    text: str = ""
    """Text of the first action, as it was written."""
    actions: tuple[Action, ...] = field(default=())
    error: str | None = None
    """Reason why there is no action."""
    parts: int = 1
    """Number of actions of the first call, such as two for a click and typing."""
    unused: tuple[str, ...] = ()
    """Arguments of the first call for which this project's actions have no field, each as `name=value`."""
    tagged: bool = False
    """Whether the grammar has thoughts between tags, so that thinking and the text after it are one thought."""
    after: str = ""
    """Text behind the last call that was read."""
    closed: bool = True
    """Whether every text of the calls is closed as the grammar requires, so that its extent is certain."""
    joint: str = ""
    """Text between the thinking and the text after it in one thought, if the grammar shows both again."""
    complete: bool = False
    """Whether `text` is a complete call, although the reply is refused."""


def read_text(text: str, sides: Sides, pointing: bool = False) -> ParsedReply:
    """Reads the thought and the actions of a reply.

    Args:
        text: the reply.
        sides: width and height of the screen, in units of the coordinates.
        pointing: whether two bare numbers are a click, as in templates for grounding.
    """
    thought, block, begin = _parts(text)
    calls = list(_calls(block))
    if "<function" in text and (tags := _tags(text, (begin, begin + calls[-1].end) if calls else None)):
        return _read_tagged(text, tags, sides)
    if pointing and _BARE_POINT.match(block):
        return _read(thought, block.strip(), [NamedCall("click", {"point": block})], sides)
    if (answer := answer_in(text)) and (not calls or answer.start < begin <= begin + calls[-1].end <= answer.end):
        return replace(_read_answer(text, answer, sides), tagged=True)
    shown = block.strip()
    if calls and calls[0].end:
        shown = block[: calls[0].end].strip()
    return _read(thought, shown, calls, sides, block[calls[-1].end :] if calls and calls[-1].end else "")


def finds_call(text: str) -> bool:
    """Checks whether a call is found in a reply, of an action of ours or of another; text in `<answer>` is one."""
    found = any(True for _ in _calls(_parts(text)[1])) or answer_in(text) is not None
    return found or ("<function" in text and bool(_tags(text, None)))


def _read_answer(text: str, answer: Answer, sides: Sides) -> ParsedReply:
    """Reads an answer in tags as a finish, or as the calls of this grammar that it is; other calls are an error."""
    before, inner, after = without_tags(text[: answer.start]), answer.content, text[answer.end :]
    thought = _thought(before) if _THOUGHT.search(before) else _SEED.sub("", before)
    own, block, begin = _parts(inner)
    found = list(_calls(block))
    label = next((one for one in _LABEL.finditer(inner) if one[1] is not None and one.end() <= begin), None)
    calls = found if label else [call for call in found if call.arguments or call.name in TYPES]
    known = bool(calls) and all(call.name in (*TYPES, *_NAMES) for call in calls)
    rest = block[calls[-1].end :] if calls else ""
    if calls and (known or label) and not rest.strip(_END):
        shown = block[: calls[0].end].strip()
        if not answer.opens and own:  # a mention of the tag
            thought, own = f"{thought.rstrip()} <answer>{'' if own[:1] in '.,;:!?' else ' '}{own}", ""
        joined = "\n".join(filter(str.strip, (thought, own)))
        return _read(joined, shown, calls, sides, after)
    if (known and rest[:1] in "\n") or is_call(inner) or is_call(block) or _ends_with_call(inner):
        problem = f"a call in an answer that this grammar does not read: {inner[:80]!r}"
        return ParsedReply(thought, inner, error=problem, after=after)
    done = NamedCall("finished", {"content": inner}, closed=answer.closed)
    return _read(thought, text[answer.start : answer.end].strip(), [done], sides, after)


def _ends_with_call(answer: str) -> bool:
    """Checks whether the last line of an answer is nothing but a call of this grammar at a place."""
    line = answer.rsplit("\n", 1)[-1]
    call = next(_calls(line[_after_fence(line, 0) :], only_first=True), None)
    return call is not None and call.name in (*TYPES, *_NAMES) and not _POINTS.keys().isdisjoint(call.arguments)


def _tags(text: str, other: tuple[int, int] | None) -> list[NamedCall]:
    """Finds the calls of UI-TARS-2's XML; none if the other calls take precedence.

    Args:
        text: the reply.
        other: begin and end of the calls after a label, or of a bare call. Tags within these calls are typed text, and
            tags before them are thought. A label within a tag's argument is text, too. If both kinds follow each other,
            the last one counts.
    """
    starts = [found.end() for found in islice(_BLOCK.finditer(text), MOST_LABELS)]
    inline = SEED.tag.search(text)
    for start in starts or ([inline.start()] if inline and inline["call"] else []):
        if other is not None and other[0] <= start < other[1]:
            continue
        calls = list(SEED.calls(text, start))
        if not calls or (not starts and not (calls[-1].closed and calls[-1].end)):
            continue
        if other is None or (starts and start >= other[1]):
            return calls
        if start < other[0] < calls[-1].end and calls[-1].closed:
            return calls
    return []


def _read_tagged(text: str, calls: list[NamedCall], sides: Sides) -> ParsedReply:
    """Reads UI-TARS-2's XML."""
    start = calls[0].start
    near = max(0, start - _BEFORE)
    opened = _OPENED.search(text[near:start])
    begin = near + opened.start() if opened else start
    between = [text[call.end : following.start] for call, following in pairwise(calls)]
    after = "\n".join(SEED.tag.sub("", one) for one in (*between, text[calls[-1].end :] if calls[-1].closed else ""))
    return replace(_read(_SEED.sub("", text[:begin]), text[begin:].strip(), calls, sides, after), tagged=True)


def _read(thought: str, shown: str, calls: list[NamedCall], sides: Sides, after: str = "") -> ParsedReply:
    """Converts calls to a reading, up to the first invalid call; if that is the first call, it becomes the error.

    Args:
        thought: the text before the calls.
        shown: the text of the first call, as it was written.
        calls: the calls.
        sides: width and height of the screen, in units of the coordinates.
        after: the text after the calls.
    """
    actions: list[Action] = []
    parts, unused = 1, list[str]()
    problem = f"no action in {shown[:80]!r}"
    if not calls and (named := _NAMED_ONLY.match(shown)):
        problem = f"the arguments of {named[1]} need names, such as start_box='(1,2)', in {shown[:80]!r}"
    for number, call in enumerate(calls):
        try:
            found, left = _actions(call, sides)
            if not actions:
                parts, unused = len(found), left
            actions += found
        except (ValidationError, ValueError) as error:
            reason = named_problem(error) if isinstance(error, ValidationError) else str(error)
            problem = f"{reason} in {shown[:80]!r}"
            after = "\n".join((*map(_in_words, calls[number:]), after)) if actions else after
            break
    closed = all(call.closed for call in calls)
    return ParsedReply(
        thought, shown, tuple(actions), None if actions else problem, parts, tuple(unused), closed=closed, after=after
    )


def _in_words(call: NamedCall) -> str:
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"


def _parts(text: str) -> tuple[str, str, int]:
    """Finds the text before the actions, the block of actions that counts, and where the block begins."""
    found = _LABEL.finditer(text)
    labels = [*islice(found, MOST_LABELS // 2), *deque(found, maxlen=MOST_LABELS // 2)]
    first: int | None = None
    begin, inside = -1, _after_fence(text, 0)
    inside += end_of_call(text, inside)
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
        begin = _after_fence(text, 0)
        if _THOUGHT.match(text.lstrip()):
            return _thought(text), "", len(text)
    begin += len(text) - begin - len(text[begin:].lstrip())
    return _thought(text[: first or 0]), text[begin:].rstrip(), begin


def _after_fence(text: str, start: int) -> int:
    """Finds where the text continues after `start`, behind a fence or a backtick of Markdown if there is one."""
    fence = _FENCE.match(text, start)
    return fence.end() if fence else start


def _calls(block: str, only_first: bool = False) -> Iterator[NamedCall]:
    """Yields the calls that a block begins with, one after the other."""
    at, matched = 0, _CALL.match(block)
    if matched is None:
        piece = block.split("\n\n")[0]
        if loose := _LOOSE_CALL.match(piece):
            yield NamedCall(loose[1], {loose[2]: _unescaped(loose[4])}, loose.end(), closed=False)
        return
    while matched is not None:
        at = matched.end()
        arguments: dict[str, object] = {}
        twice = ""
        for key, value in _ARGUMENT.findall(matched[2]):
            twice = twice or (key if key in arguments else "")
            arguments[key] = _literal(value)
        yield NamedCall(matched[1], arguments, at, twice)
        matched = None if only_first else _CALL.match(block, at)


def end_of_call(text: str, start: int) -> int:
    """Counts the characters of the call that begins at `start`; 0 if there is no call or its texts have no certain
    end."""
    return next((call.end for call in _calls(text[start:], only_first=True) if call.closed), 0)


def _actions(call: NamedCall, sides: Sides) -> tuple[list[Action], list[str]]:
    """Converts a call into actions, usually one, and lists its unused arguments; raises ValueError if there is no
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
    ):  # a box is recognised under any name
        fields |= {"x": fields.pop("to_x"), "y": fields.pop("to_y")}
    if isinstance(direction := fields.get("direction"), str):
        fields["direction"] = direction.lower()
    if name == "scroll" and "to_x" in fields and "direction" not in fields:
        fields["type"] = "drag"  # mobile: a finger that moves from one place to another
    if name == "hotkey" and isinstance(key := fields.get("key"), list):
        fields["key"] = together_in(cast(list[str], key))
    elif name in ("hotkey", "press", "release") and isinstance(key := fields.get("key"), str):
        fields["key"] = together(names_of(key)) if name == "hotkey" else single(key)
    if name == "tool" and isinstance(written := fields.get("arguments"), str):
        fields["arguments"] = decoded_object(written)
    if name == "finished" and "status" in fields:
        status = fields.pop("status")
        fields["type"] = "finished" if is_unset(status) or means_success(status) else "call_user"
        named.pop("status", None)
    before, after = list[Action](), {"x", "y"}
    if name == "type":
        place = (fields.pop("x"), fields.pop("y")) if {"x", "y"} <= fields.keys() else None
        enter, clear = (any(is_true(fields.pop(one, None)) for one in names) for names in (ENTERS, CLEARS))
        before, fields["content"] = typing(fields.get("content"), place, enter, clear)
        after |= {*ENTERS, *CLEARS}
    kind = TYPES.get(str(fields["type"]))
    known = {*kind.model_fields, *(after if name == "type" else ())} - {"seconds"} if kind else fields.keys()
    left = [key for key, names in named.items() if not known & {*names} and fields.keys() & {*names}]
    for key in left:
        for one in named[key]:
            fields.pop(one)
    given = Arguments({key: call.arguments[key] for key in left})
    return [*before, *meant(action_of(fields), given)], [*given.unused]


def typing(
    content: object, place: tuple[object, object] | None, enter: bool, clear: bool
) -> tuple[list[Action], object]:
    """Lists the actions to perform before typing, and the text to type.

    Args:
        content: the text as it was written; the action itself checks a value that is no string.
        place: x and y in [0, 1] of a click that comes first.
        enter: whether to press enter afterwards, which a new line at the text's end does.
        clear: whether to empty the field first.
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


def code_until(text: str, start: int, close: str) -> tuple[int, int]:
    """Finds the end of Python code and the end of its closing text, which no string of the code can contain.

    Args:
        text: the reply.
        start: where the code begins.
        close: the closing text. If the code is no Python otherwise, a closing text within a quote counts, too.
    """
    mark = re.escape(close)
    found = re.compile(rf"(?>{_STRINGS}|#(?:(?!{mark})[^\n])*+|(?!{mark}).)*+", re.DOTALL).match(text, start)
    end = found.end() if found else start
    if not is_python(text[start:end]) and (first := text.find(close, start)) >= 0:
        end = first
    return end, min(len(text), end + len(close))


def is_python(code: str) -> bool:
    """Checks whether a text is Python by its grammar."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            ast.parse(textwrap.dedent(code).strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def is_true(value: object) -> bool:
    """Checks whether an argument is true or 1, as JSON or Python writes it, or as text."""
    return value == 1 or (isinstance(value, str) and value.strip().lower() in ("true", "1"))


def place_of(text: str, sides: Sides) -> tuple[float, float]:
    """Computes the place, in [0, 1], of two coordinates or the corners of a box.

    Raises:
        ValueError: the text is neither.
    """
    numbers = [float(number) for number in _NUMBER.findall(text[:200])]
    if len(numbers) not in (2, 4):
        raise ValueError(f"{text[:80]!r} is neither a point nor a box")
    x, y = (sum(numbers[axis::2]) / len(numbers[axis::2]) for axis in (0, 1))
    return x / sides[0], y / sides[1]


def place_in(given: object, sides: Sides) -> tuple[float, float]:
    """Computes the place, in [0, 1], of an argument by JSON: a list of numbers, each perhaps a text, or a text.

    Raises:
        ValueError: the argument is no place.
    """
    if isinstance(given, str):
        return place_of(given, sides)
    items = cast(list[object], given) if isinstance(given, list) else []
    if len(items) == 1 and isinstance(items[0], list):
        items = cast(list[object], items[0])
    numbers = [_number(one) for one in items]
    if len(numbers) not in (2, 4) or not all(abs(one) < 1e9 for one in numbers):
        raise ValueError(f"{str(given)[:60]} is no coordinate")
    x, y = (sum(numbers[axis::2]) / len(numbers[axis::2]) for axis in (0, 1))
    return x / sides[0], y / sides[1]


def _number(value: object) -> float:
    """Returns a number, also of a text; infinite for anything else."""
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value.strip()) else inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        return inf
    return float(value) if abs(value) < 1e9 else inf


def without_opening(before: str) -> str:
    """Removes the label and the fence between a thought and its action, on one last line or on two.

    If a fence at the thought's beginning encloses the action as well, it is removed, too. Blocks and spans of code
    within the thought stay, and so does a label within a line.
    """
    before = _AROUND.sub("", before)
    for _ in ("fence", "label"):
        head, _, last = before.rstrip().rpartition("\n")
        opening = _OPENING.fullmatch(last)
        if not last or opening is None or (last.strip() == "```" and _opens_block(head)):
            break
        before = head
    return _FIRST_FENCE.sub("", before) if _opens_block(before) else before


def _opens_block(text: str) -> bool:
    """Whether a text ends within a block of code; fences and spans of code within a line do not count."""
    return sum(line.count("```") % 2 for line in text.split("\n") if _FENCE_AT.search(line)) % 2 == 1


def _thought(text: str) -> str:
    """Returns the text before the action, without its label or the two labels of a reflection."""
    text = without_opening(_SEED.sub("", _ENVIRONMENT.sub("", text))).strip()
    label = _THOUGHT.search(text)
    return _THOUGHT.sub("", text, count=1 if label and label[1].lower() == "thought" else 2).strip()


def decoded_object(text: str) -> dict[str, Any]:
    """Decodes the arguments of a tool, written as a JSON object; raises ValueError for any other text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"`arguments` is no JSON: {text[:60]!r}") from error
    if not isinstance(found, dict):
        raise ValueError(f"`arguments` is no JSON object: {text[:60]!r}")
    return cast(dict[str, Any], found)


def _literal(text: str) -> object:
    """Evaluates an argument: a text, a number, true, false or none; a place is returned as written."""
    if text[0] in "'\"":
        return _unescaped(text[1:-1])
    if text[0] == "[" and (items := re.findall(_QUOTED, text, re.DOTALL)):
        return [_unescaped(one[1:-1]) for one in items]
    bare = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in bare:
        return bare[text.lower()]
    return float(text) if _NUMBER.fullmatch(text) else text


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _UNESCAPES.get(match[1], match[0]), text, flags=re.DOTALL)
