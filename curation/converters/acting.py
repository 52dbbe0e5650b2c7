"""Whether a reply acts: whether it holds a call, of an action of ours or of any other, in a notation that models write.

Of several replies to one screen the one that acts answers it, also where no action of ours is read from it, since the
next screen shows what its call did. So a call is found by the grammars in which calls are written: Python, UI-TARS's
text and named gestures on a line, objects of JSON, the tags of chat templates, and labels before them. Behind another
label or the mark of a list, as in a plan or an answer, only a known action is one. A mention of a call is none.
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
from models.families.code.calls import FAMILY_SIGNATURES, SIGNATURES
from models.families.reading import end_of_call
from models.families.thinking import split_thinking
from schemas.action import TYPES

_MOST = 32
"""Maximum objects of a reply that are considered, its first and its last ones, so that reading takes linear time."""
_OTHERS = (
    "key",
    "keypress",
    "mouse_move",
    "tap",
    "swipe",
    "long_press",
    "input_text",
    "left_click_drag",
    "goto",
    "stop",
)
KINDS = frozenset(
    one.lower() for one in (*TYPES, *NATIVE, *CLICKS, *SIGNATURES, *FAMILY_SIGNATURES, *_OTHERS, "visit_url", "hover")
)
"""Names of actions, in lower case."""
_NAMED = r"[^\W\d][\w.]{0,98}\("
_LABEL = r"(?<!last )(?<!previous )\b(?:Action|动作|操作)(?:[^\S\n]\d{1,3})?[*_]*+[:：][*_]*+\s*+"
_MARKED = re.compile(
    rf"{_LABEL}(?:[-*]\s++)?(?:`{{1,3}}(?:\w+\n)?+\s*+)?[\"']?(?:{_NAMED}|\{{\s*+[\"'])"
    r"|^[^\w\n]*+Action[*_]*+[:：][*_]*+[^\S\n]*+[\w./-]{1,99}[^\S\n]*+\n[^\w\n]*+Action[ _]Input[*_]*+[:：]"
    r"|<(?:tool_call|function_call|tool_use|action)>\s*+(?:`{1,3}\w*+\s*+)?"
    rf"(?:[\[{{]|<(?:function|invoke)\b|{_NAMED}|[\w./-]{{1,99}}\s*+(?:<arg_key>|</tool_call>))"
    r"|<(?:[\w|｜]{1,20}[:|｜])?(?:function|invoke)(?:_\w{1,80})?(?:=|\s++name\s*+=\s*+)[\"']?[\w.-]{1,99}[\"']?\s*+[>{]"
    rf"|<\|begin_of_box\|>\s*+{_NAMED}"
    r"|<[|｜]tool[_▁]calls?(?:[_▁]section)?[_▁]begin[|｜]>|<\|(?:python_tag|tool_call(?:_start)?)(?:\|)?>"
    r"|\[TOOL_CALLS\]\s*+[\w\[{]|<start_function_call>|\bto=functions\.\w"
    r"|```(?:click|hover|type|press|scroll|goto|stop|new_tab|tab_focus|close_tab|go_back|go_forward)\b[^`\n]*+```",
    re.MULTILINE | re.IGNORECASE,
)
"""A call behind a label, ReAct's two labels, a call within the tags of a chat template, and WebArena's fence."""
_LINE = re.compile(
    r"(?P<mark>[^\S\n]*+(?:(?:[-*+>•]|\d{1,3}[.)])[^\S\n]++)*+)[*_#`\s]*+"
    r"(?P<label>[^\W\d][\w ]{0,30}[*_]*+[:：][*_`\s]*+)?"
)
"""What may stand before a call on its line: marks of lists and of Markdown, and a label."""
_TOKEN = re.compile(r"(?:<\|\w{1,20}\|>|</s>)\Z")
"""The token that ends a turn, which some servers leave in a reply."""
_PARAGRAPHS = re.compile(r"\n[ \t]*+(?:`{3}\w*+[ \t]*+)?(?=\n|\Z)")
_BEGINS = re.compile(rf"\[*+{_NAMED}|await\s|import\s|from\s")
_TEXT = re.compile(r"[\w.]+\((?:\w+\s*+=\s*+)?(?P<quote>['\"]).*(?P=quote)\s*+(?:,\s*+\w+\s*+=[^()]*+)?\)?")
"""A call with one text, which may hold the quotes around it."""
_GESTURE = re.compile(
    r"(?P<name>\w+)(?: ?\[[^\[\]]*+\](?: \[[^\[\]]*+\])*+| ?\([\d.,\s-]++\)| ?<(?:point|bbox|box|\|box_start\|)>.*"
    r"| ?\[\[[\d.,\s-]++\]\])"
)
"""A named action with a place or an element: `click [164]`, `Tap (511, 422)`, `CLICK <point>[[1,2]]</point>`."""
_OBJECT = re.compile(r"\{\s*+[\"'][\w ]+[\"']\s*+:")
_ACTIONS = ("action", "action_type", "next_action")
_FUNCTIONS = ("function", "function_call", "tool", "tool_name", "tool_call")
_ARGUMENTS = ("arguments", "parameters", "input", "args", "kwargs", "params")
_NONE = re.compile(r"\W*+(?:(?:none|null|nan|empty|no|nothing|n/?a)\b|\Z)", re.IGNORECASE)
"""A value that says that there is no action."""
_BROKEN = re.compile(
    rf"[\"'](?:{'|'.join(_ACTIONS)})[\"']\s*+:\s*+[\[{{\s]*+[\"']?(?!(?:none|null|nan|no|n/?a)\b)\w", re.I
)
_PLACE = re.compile(
    r"\s*+(?:<ref>[^<]*+</ref>\s*+)?(?:<\|?(?:point|bbox|box|box_start)\|?>|[(\[])[\s(\[]*+"
    r"-?\d[\d.]*+[,\s]\s*+-?\d[-\d.,\s()\[\]]*+(?:<\|?/?(?:point|bbox|box|box_end)\|?>\s*+)*+"
)
"""A place alone, in brackets or tags, which is a click where a model is asked to point."""
_DECODER = json.JSONDecoder(strict=False)


def holds_call(reply: str) -> bool:
    """Checks whether a reply holds a call behind its thinking; in linear time, and never raising for any text."""
    answer = split_thinking(reply)[1]
    return bool(_MARKED.search(answer) or _PLACE.fullmatch(answer)) or _holds_line(answer) or _holds_object(answer)


def _holds_line(text: str) -> bool:
    """Checks whether a line holds calls alone, or the rest of a paragraph from its first line that begins one."""
    for paragraph in _PARAGRAPHS.split(text):
        lines = paragraph.split("\n")
        begun = list[tuple[int, str]]()
        for number, line in enumerate(lines):
            opening = _LINE.match(line)
            rest = _without_end(line[opening.end() if opening else 0 :])
            gesture = _GESTURE.fullmatch(rest)
            if gesture and gesture["name"].lower() in KINDS:
                return True
            if not _BEGINS.match(rest):
                continue
            plain = opening is None or not (opening["mark"].strip() or opening["label"])
            if _is_written(rest) and (plain or _is_known(rest)):
                return True
            if plain or _is_known(rest):
                begun.append((number, rest))
        if begun and begun[0][0] < len(lines) - 1 and _is_python("\n".join([begun[0][1], *lines[begun[0][0] + 1 :]])):
            return True
    return False


def _without_end(line: str) -> str:
    line = line.rstrip()
    token = _TOKEN.search(line[-30:])
    return (line[: -len(token[0])] if token else line).rstrip(" \t\r`*_;.")


def _is_known(line: str) -> bool:
    """Checks whether a call has a known name, or arguments by name."""
    name, _, arguments = line.lstrip("[").partition("(")
    return (
        name.rpartition(".")[2].lower() in KINDS or "." in name or re.match(r"\s*+\w++\s*+=[^=]", arguments) is not None
    )


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
            body = ast.parse(re.sub(r"\) (?=[^\W\d][\w.]*+\()", ");", text.strip())).body
        calls = [one for one in body if not isinstance(one, ast.Import | ast.ImportFrom)]
        return bool(calls) and all(isinstance(one, ast.Expr) and _calls(one.value) for one in calls)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False


def _calls(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Tuple):
        return bool(node.elts) and all(map(_calls, node.elts))
    if isinstance(node, ast.Await):
        return _calls(node.value)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return False
    given = [*node.args, *(word.value for word in node.keywords)]
    return isinstance(node.func, ast.Attribute) or all(_is_literal(one) or _calls(one) for one in given)


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return isinstance(node, ast.Attribute)  # a constant of a module
    return True


def _holds_object(text: str) -> bool:
    """Checks whether an object of JSON names what it calls, or a broken one does; objects within another are its own.

    A place without more is a call where it is the whole answer.
    """
    for begin, fields, end in _objects(text):
        whole = not _bare(text[:begin]) and not _bare(text[end:])
        if fields is None or _is_call(fields) or (whole and {"x", "y"} <= fields.keys()):
            return True
    return False


def _bare(text: str) -> str:
    """Removes blanks, fences and brackets of lists."""
    return re.sub(r"```\w*+|[\s`\[\]]", "", text)


def _objects(text: str) -> Iterator[tuple[int, Mapping[str, Any] | None, int]]:
    """Yields where an object begins, its fields, and its end; no fields of a broken one with an action's name."""
    found, end = _OBJECT.finditer(text), 0
    for begin in (*islice(found, _MOST // 2), *deque(found, maxlen=_MOST // 2)):
        if begin.start() < end:
            continue
        try:
            value, end = _DECODER.raw_decode(text, begin.start())
            yield begin.start(), cast(Mapping[str, Any], value), end
        except (ValueError, RecursionError):
            if _BROKEN.search(text, begin.start()):
                yield begin.start(), None, len(text)


def _is_call(given: Mapping[str, Any]) -> bool:
    """Checks whether an object names what it calls: as its action, as its function, or by a kind of action."""
    fields = {name.lower().replace(" ", "_"): value for name, value in given.items()}
    if any(_names(fields.get(name)) for name in _ACTIONS):
        return True
    first, has = next(iter(fields), ""), any(name in fields for name in _ARGUMENTS)
    if any(
        _names(fields.get(name)) and (has or name == first or isinstance(fields[name], dict)) for name in _FUNCTIONS
    ):
        return True
    name, kind = fields.get("name"), fields.get("type")
    if isinstance(name, str) and (has or name in TOOLS or name.lower() in KINDS):
        return True
    if isinstance(kind, str) and kind.lower() in KINDS and len(fields.keys() - {"value"}) > 1:
        return True
    return any(
        _is_call(fields_of(one)) for name in ("tool_calls", "actions") for one in items_of(fields.get(name)) or []
    )


def _names(value: object) -> bool:
    """Checks whether a value names an action: a text that does not say none, or an object or a list with something."""
    if isinstance(value, str):
        return not _NONE.match(value)
    return isinstance(value, dict | list) and bool(cast(object, value))
