"""Finds the answer of a reply between `<answer>` and `</answer>`, and decides whether it is a call as a whole.

A call within words, data or a program is part of an answer. An answer that is nothing but a call, in this grammar or in
another notation, is no answer.
"""

import ast
import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from models.families.code.calls import FAMILY_SIGNATURES, SIGNATURES, is_unset
from schemas.action import TYPES

_TAGS = re.compile(r"</?answer>")
_WHOLE = re.compile(r"<answer>([^<]*+)</answer>")
_OPENS = re.compile(r"(?:\A|[\n>.!?:。!?:])[ \t]*\Z")
"""Text before a tag that opens an answer even without its end: the begin of a line, or the end of a sentence."""
_BEFORE = 20
"""Maximum distance of a tag from the end of the text before it, in characters."""
_FENCE = re.compile(r"\A\s*`{1,3}(?:\w+\n)?|`{1,3}\s*\Z")
_LIST = re.compile(r"^[ \t]*(?:[-*+>]|\d{1,3}[.)])[ \t]+", re.MULTILINE)
_TAGGED = re.compile(
    r"<(?:tool_call|action)>\s*[\[{`<\w]|<function(?:_\w{1,80})?(?:=|\s{1,8}name=)|<seed:tool_call|<\|begin_of_box\|>\s*\w+\(",
    re.IGNORECASE,
)
_HELD = r"(?:(?:next_)?actions?(?:_type)?|tool_name)"
_FIRST = re.compile(rf"[\[\s]*\{{\s*[\"']{_HELD}[\"']\s*+:\s*+(?![\"']?(?:none|null|no|nothing|n/?a)\b)", re.IGNORECASE)
"""An object that begins with an action, also one that is cut off or no JSON."""
_CUT = re.compile(r"[\[\s]*\{\s*[\"']name[\"']\s*:\s*[\"'][\w.]{1,80}[\"']\s*,\s*[\"'](?:arguments|args)[\"']\s*:")
_PLACES = ("x", "y", "coordinate", "coordinates", "point", "position", "start_box", "start_point", "box", "point_2d")
_GIVEN = {*_PLACES, "keys", "text", "content", "direction", "scroll_x", "scroll_y", "element"}
"""Arguments of an action with which an object's `type` is the action's."""
_FIELDS = re.compile(r"(?:\A\s*+|\t[^\S\t]*+)action:[A-Z]+\s*(?:\t|\Z)")
"""The action of a record of fields with tabs between."""
_VERBS = "click|tap|press|drag|swipe|move|hover|scroll|zoom|type|input|key|hotkey|keypress|wait"
_NAME = re.compile(rf"(?:[a-z]{{1,20}}_)?(?:{_VERBS})(?:_[a-z]{{1,20}})?")
"""Names of actions in any model's notation, such as `left_click` and `input_text`."""
_OPENERS = ("browser", "open", "launch")
"""Tools and actions that are also functions of programs."""
_TOOLS = ("computer", "computer_use", "mobile_use", "tool_use", "pyautogui", "launch_app", *_OPENERS)
_OTHERS = (
    *("answer", "ask_user", "ask_user_question", "interact", "screenshot", "status", "terminate", "complete", "finish"),
    *("goto", "goto_url", "go_to_url", "visit_url", "navigate", "go_back", "history_back", "web_search"),
    *("keyboard_enter", "left_mouse_down", "left_mouse_up", "system_button", "select_option"),
    *("pause_and_memorize_fact", "read_page_answer_question"),
)
"""Other actions of the families' tools, of browser-use and of AndroidWorld: common words, so they count only at a key
for an action."""
_MODULES = ("pyautogui", "computer")
_FUNCTIONS = {*TYPES, *SIGNATURES, *FAMILY_SIGNATURES}
_KNOWN = {name.lower() for name in (*_FUNCTIONS, *_TOOLS)}
_NUMBERS = re.compile(r"\s*+(?:<\w{1,20}>)?[\s(\[]*+-?\d[-\d.]*+(?:[\s,]++-?\d[-\d.]*+)+[\s)\]]*+(?:</\w{1,20}>)?\s*")
_DIGITS = re.compile(r"-?\d{1,9}(?:\.\d{1,9})?")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WEAK = ("key", "input", "type", "note", "tool")
"""Names of actions that are also kinds of other objects."""
_MOST = 100_000
"""Maximum characters of an answer that may be a call."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a reply, and where it is."""

    content: str
    start: int
    """Begin of its opening tag."""
    end: int
    closed: bool
    opens: bool
    """Whether its opening tag begins a line or follows a sentence."""


def answer_in(text: str) -> Answer | None:
    """Finds the last answer between tags; its end may be cut off if its begin is the begin of a line or a sentence.

    A tag that is mentioned within a line opens no answer if another one begins a line later.
    """
    found: Answer | None = None
    opened: tuple[int, int, bool] | None = None
    for tag in _TAGS.finditer(text):
        if tag[0] == "<answer>":
            begins = _OPENS.search(text, max(0, tag.start() - _BEFORE), tag.start()) is not None
            if opened is None or (begins and not opened[2]):
                opened = (tag.start(), tag.end(), begins)
        elif opened is not None:
            inner = text[opened[1] : tag.start()].strip()
            found, opened = Answer(inner, opened[0], tag.end(), True, opened[2]), None
    if opened is not None and opened[2]:
        return Answer(text[opened[1] :].strip(), opened[0], len(text), False, True)
    return found


def without_tags(text: str) -> str:
    """Removes the tags around whole answers; a mention of a tag stays."""
    return _WHOLE.sub(r"\1", text)


def is_call(answer: str) -> bool:
    """Checks whether an answer is nothing but a call, in the notation of any model; never raises for any text."""
    text = _LIST.sub("", _FENCE.sub("", answer)).strip()
    if not text or len(text) > _MOST:
        return False
    if _TAGGED.match(text) or _FIELDS.search(text):
        return True
    return _is_object_call(text) if text[0] in "{[" else _is_code_call(text)


def _is_object_call(text: str) -> bool:
    """Checks whether an object, or each of a list of objects, is a call; one that cannot be read, by its beginning."""
    for read in cast(tuple[Callable[[str], object], ...], (json.loads, _literal)):
        try:
            value = read(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        items = cast(list[object], value) if isinstance(value, list) else [value]
        return bool(items) and all(isinstance(one, dict) and _is_call(cast(dict[str, Any], one)) for one in items)
    return bool(_FIRST.match(text) or _CUT.match(text))


def _is_call(fields: Mapping[str, Any]) -> bool:
    """Checks whether an object is an action, a call of a tool, or holds one."""
    given = {str(name).lower(): value for name, value in fields.items()}
    if given and set(given) <= set(_PLACES) and any(map(_is_place, given.values())):
        return True  # a place alone, as models answer that ground
    if any(_holds_call(value) for name, value in given.items() if name in ("function_call", "tool_call", "tool_calls")):
        return True
    if any(_names(value) for name, value in given.items() if re.fullmatch(_HELD, name)):
        return True
    name, kind = given.get("name"), given.get("type")
    if isinstance(name, str) and any(_is_object(given.get(one)) for one in ("arguments", "args")):
        return True
    if _is_known(name) and any(_is_object(given.get(one)) for one in ("parameters", "input")):
        return True
    return _is_known(kind) and (kind not in _WEAK or "text" in given) and not _GIVEN.isdisjoint(given)


def _is_place(value: object) -> bool:
    """Checks whether a value is a list of numbers, or such a list as text."""
    if isinstance(value, list):
        return bool(value) and all(
            isinstance(one, int | float | list) or _DIGITS.fullmatch(str(one)) for one in cast(list[object], value)
        )
    return isinstance(value, str) and _NUMBERS.fullmatch(value) is not None


def _holds_call(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(one, dict) for one in cast(list[object], value))
    return _is_object(value)


def _names(value: object) -> bool:
    """Checks whether the value at a key for an action is an action: its name, an object with it, or a list of these."""
    if isinstance(value, dict):
        held = cast(dict[str, Any], value)
        return _is_call(held) or any(map(_names, held))
    if isinstance(value, list):
        items = cast(list[object], value)
        return any(isinstance(one, dict) and _names(cast(object, one)) for one in items) or (
            len(items) > 1 and _is_known(items[0]) and not isinstance(items[1], str)
        )
    return _is_known(value) or (isinstance(value, str) and value.lower() in _OTHERS)


def _is_known(name: object) -> bool:
    """Checks whether a name is that of an action or of a tool for a computer, of any model."""
    if not isinstance(name, str) or is_unset(name) or len(name) > 80:
        return False
    plain = _HUMP.sub("_", name.strip()).lower()
    return plain in _KNOWN or _NAME.fullmatch(plain) is not None


def _is_object(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, str) and value.lstrip()[:1] == "{")


def _is_code_call(text: str) -> bool:
    """Checks whether a text is code with a call of pyautogui, or nothing but calls of actions."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            body = ast.parse(text).body
        if body and all(map(_is_action, body)):
            return True
        return any(_is_module_call(node) for statement in body for node in ast.walk(statement))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False


def _is_module_call(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    module = node.func.value
    return isinstance(module, ast.Name) and module.id in _MODULES and node.func.attr in _FUNCTIONS


def _is_action(statement: ast.stmt) -> bool:
    """Checks whether a statement calls an action by its name, with literals; raises ValueError for other arguments."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return False
    name, values = call.func.id, [*call.args, *(one.value for one in call.keywords)]
    if name not in _FUNCTIONS and not any(one.arg == "action" for one in call.keywords):
        humped = name[:1].isupper() and not name.isupper() and not call.args
        if (
            not _is_known(name)
            or (name in _OPENERS and call.args)
            or not (humped or (values and (name.islower() or name.isupper())))
        ):
            return False
    for value in values:
        ast.literal_eval(value)
    return True


def _literal(text: str) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return ast.literal_eval(text)
