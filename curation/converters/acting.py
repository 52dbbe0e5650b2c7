"""Whether a reply acts: whether it holds a call, of an action of ours or of any other, in a notation that models write.

Of several replies to one screen the one that acts answers it, also where no action of ours is read from it, since the
next screen shows what its call did. So a call is found by the grammars in which calls are written: Python and UI-TARS's
text on a line, objects of JSON, the tags of chat templates, and labels before them. A mention of an action is none.
"""

import ast
import json
import re
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, cast

from curation.converters.atif.computer import CLICKS, NATIVE, TOOLS
from curation.converters.files import fields_of, items_of
from models.families.code.calls import is_unset
from models.families.reading import end_of_call
from models.families.thinking import split_thinking
from schemas.action import TYPES

_MOST = 32
"""Maximum objects of a reply that are considered, its first and its last ones, so that reading takes linear time."""
_NAMED = r"[^\W\d][\w.]{0,98}\("
_FENCE = r"(?:`{1,3}(?:\w+\n)?+\s*+)?"
_MARKED = re.compile(
    rf"\bAction(?:[^\S\n]\d{{1,3}})?[*_]*+[:：][*_]*+\s*+{_FENCE}(?:{_NAMED}|\{{\s*+[\"'])"
    r"|^[^\w\n]*+Action[*_]*+[:：][*_]*+[^\S\n]*+[\w./-]{1,99}[^\S\n]*+\n[^\w\n]*+Action[ _]Input[*_]*+[:：]"
    r"|<(?:tool_call|function_call|tool_use|action)>\s*+(?:`{1,3}\w*+\s*+)?"
    rf"(?:[\[{{]|<(?:function|invoke)\b|{_NAMED}|[\w./-]{{1,99}}\s*+(?:<arg_key>|</tool_call>))"
    r"|<(?:\w{1,20}:)?(?:function|invoke)(?:_\w{1,80})?(?:=|\s++name\s*+=\s*+)[\"']?[\w.-]{1,99}[\"']?\s*+>"
    rf"|<\|begin_of_box\|>\s*+(?:{_NAMED}|\{{|[A-Z]{{2,20}}\b)"
    r"|<[|｜]tool[_▁]calls?(?:[_▁]section)?[_▁]begin[|｜]>|<\|(?:python_tag|tool_call(?:_start)?)(?:\|)?>"
    r"|\[TOOL_CALLS\]\s*+[\w\[{]|<start_function_call>|\bto=functions\.\w"
    r"|```(?:click|hover|type|press|scroll|goto|stop|new_tab|tab_focus|close_tab|go_back|go_forward)\b[^`\n]*+```",
    re.MULTILINE | re.IGNORECASE,
)
"""A call behind a label, ReAct's two labels, a call within the tags of a chat template, and WebArena's fence."""
_LINE = re.compile(
    r"[^\S\n]*+(?:(?:[-*+>•]|\d{1,3}[.)])[^\S\n]++)*+[*_#`\s]*+(?:[^\W\d][\w ]{0,30}[*_]*+[:：][*_`\s]*+)?"
)
"""What may stand before a call on its line: marks of Markdown, and a label."""
_PARAGRAPHS = re.compile(r"\n[ \t]*+(?:`{3}\w*+[ \t]*+)?(?=\n|\Z)")
_CALLS = re.compile(rf"\[*+{_NAMED}")
_TEXT = re.compile(r"[\w.]+\((?:\w+\s*+=\s*+)?(?P<quote>['\"]).*(?P=quote)\s*+\)?")
"""A call with one text, which may hold the quotes around it."""
_OBJECT = re.compile(r"\{\s*+[\"']\w+[\"']\s*+:")
_NAMES = ("action", "action_type", "function", "function_call", "tool", "tool_name", "tool_call")
"""Fields of an object whose value names what it calls."""
_ARGUMENTS = ("arguments", "parameters", "input", "args", "kwargs")
_BROKEN = re.compile(
    rf"[\"'](?:{'|'.join(_NAMES)})[\"']\s*+:\s*+(?:\{{\s*+)?[\"'](?!(?:none|null|nan|empty)?[\"'])", re.I
)
_KINDS = frozenset(
    {*TYPES, *NATIVE, *CLICKS, *("key", "keypress", "move", "mouse_move", "drag", "left_click_drag", "terminate")}
)
_PLACE = re.compile(
    r"\s*+(?:<ref>[^<]*+</ref>\s*+)?(?:<\|?/?(?:point|bbox|box|box_start|box_end)\|?>|[(\[]|\s)*+-?\d[-\d.]*+[,\s]\s*+-?\d"
    r"(?:[-\d.,\s)\]]|<\|?/?(?:point|bbox|box|box_end)\|?>)*+"
)
"""A place alone, which is a click where a model is asked to point."""
_DECODER = json.JSONDecoder(strict=False)


def holds_call(reply: str) -> bool:
    """Checks whether a reply holds a call behind its thinking; in linear time, and never raising for any text."""
    answer = split_thinking(reply)[1]
    return (
        bool(_MARKED.search(answer) or _PLACE.fullmatch(answer))
        or _holds_line(answer)
        or any(map(_is_call, _objects(answer)))
    )


def _holds_line(text: str) -> bool:
    """Checks whether a line holds calls alone, or the rest of a paragraph from its first line that begins one."""
    for paragraph in _PARAGRAPHS.split(text):
        lines = paragraph.split("\n")
        begun = [(number, rest) for number, line in enumerate(lines) if _CALLS.match(rest := _without_opening(line))]
        if any(_is_written(rest) for _, rest in begun):
            return True
        if begun and begun[0][0] < len(lines) - 1 and _is_python("\n".join([begun[0][1], *lines[begun[0][0] + 1 :]])):
            return True
    return False


def _without_opening(line: str) -> str:
    found = _LINE.match(line)
    return line[found.end() if found else 0 :].rstrip(" \t\r`*_;.")


def _is_written(line: str) -> bool:
    """Checks whether a line without its opening is a call in Python or in UI-TARS's text, or several."""
    if _is_python(line) or _TEXT.fullmatch(line):
        return True
    end = end_of_call(line, 0)
    return end > 0 and not line[end:].strip()


def _is_python(text: str) -> bool:
    """Checks whether a text is Python's calls alone: of methods, or with literals as arguments."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            body = ast.parse(text.strip()).body
        return bool(body) and all(isinstance(one, ast.Expr) and _calls(one.value) for one in body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False


def _calls(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Tuple):
        return bool(node.elts) and all(map(_calls, node.elts))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return False
    return isinstance(node.func, ast.Attribute) or all(
        map(_is_literal, [*node.args, *(word.value for word in node.keywords)])
    )


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return isinstance(node, ast.Attribute)  # a constant of a module
    return True


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yields the objects of JSON in a text; of a broken one that names a call, a call."""
    found, end = _OBJECT.finditer(text), 0
    for begin in (*islice(found, _MOST // 2), *deque(found, maxlen=_MOST // 2)):
        if begin.start() < end:
            continue
        try:
            value, end = _DECODER.raw_decode(text, begin.start())
            yield cast(Mapping[str, Any], value)
        except (ValueError, RecursionError):
            if _BROKEN.search(text, begin.start(), begin.start() + 2_000):
                yield {"action": "?"}


def _is_call(fields: Mapping[str, Any]) -> bool:
    """Checks whether an object names what it calls: by a name, by a kind of action, or by its arguments or place."""
    if any(isinstance(fields.get(name), str | Mapping) and not is_unset(fields[name]) for name in _NAMES):
        return True
    if {"x", "y"} <= fields.keys():
        return True
    if isinstance(fields.get("name"), str) and (any(name in fields for name in _ARGUMENTS) or fields["name"] in TOOLS):
        return True
    held = [fields_of(one) for one in items_of(fields.get("tool_calls")) or items_of(fields.get("actions")) or []]
    return fields.get("type") in _KINDS if isinstance(fields.get("type"), str) else any(map(_is_call, held))
