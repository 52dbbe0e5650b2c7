"""Reads calls in Python without running them: by Python's grammar, or call by call if a text is not Python.

An argument is a literal, or one of pyautogui's constants. A call is bound to its function's arguments, in order or by
name, as the function documents them.

Source: pyautogui 0.9.54 (`pyautogui/__init__.py`); the prompts of OpenCUA and ScaleCUA in `models/families/templates`.
"""

import ast
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from schemas.keyboard import BLANKS

MAX_TEXT = 100_000
"""Maximum characters of code that are read."""
MAX_CALLS = 100
"""Maximum calls, and actions, of one program."""
MAX_CALL = 10_000
"""Maximum characters of one call in a text that is not Python."""
SIGNATURES: Mapping[str, str] = {
    "click": "x y clicks interval button duration tween logScreenshot _pause",
    **dict.fromkeys(("leftClick", "rightClick", "middleClick"), "x y interval duration tween logScreenshot _pause"),
    **dict.fromkeys(("doubleClick", "tripleClick"), "x y interval button duration tween logScreenshot _pause"),
    **dict.fromkeys(("mouseDown", "mouseUp"), "x y button duration tween logScreenshot _pause"),
    **dict.fromkeys(("scroll", "hscroll", "vscroll"), "clicks x y logScreenshot _pause"),
    "moveTo": "x y duration tween logScreenshot _pause",
    **dict.fromkeys(("move", "moveRel"), "xOffset yOffset duration tween logScreenshot _pause"),
    "dragTo": "x y duration tween button logScreenshot _pause mouseDownUp",
    **dict.fromkeys(("drag", "dragRel"), "xOffset yOffset duration tween button logScreenshot _pause mouseDownUp"),
    **dict.fromkeys(("keyDown", "keyUp"), "key logScreenshot _pause"),
    "press": "keys presses interval logScreenshot _pause",
    "hold": "keys logScreenshot _pause",
    **dict.fromkeys(("write", "typewrite"), "message interval logScreenshot _pause"),
    **dict.fromkeys(("hotkey", "shortcut"), "*keys interval logScreenshot _pause"),
    **dict.fromkeys(("sleep", "countdown"), "seconds"),
}
"""pyautogui's functions and their arguments in order."""
FAMILY_SIGNATURES: Mapping[str, str] = {
    "click": "x y clicks button",
    "doubleClick": "x y button",
    "rightClick": "x y",
    **dict.fromkeys(("tripleClick", "triple_click"), "x y"),
    "scroll": "clicks x y",
    "moveTo": "x y",
    "dragTo": "x y button",
    "press": "keys presses",
    "hotkey": "*args",
    **dict.fromkeys(("keyDown", "keyUp"), "key"),
    "write": "message",
    "swipe": "from_coord to_coord direction amount",
    "long_press": "x y duration",
    "open_app": "app_name",
    "open_url": "url",
    **dict.fromkeys(("wait", "sleep", "WAIT"), "seconds"),
    "response": "answer",
    "terminate": "status info answer",
    **dict.fromkeys(("call_user", "callUser"), "content"),
    **dict.fromkeys(("navigate_home", "home", "navigate_back", "back", "go_backward", "DONE", "FAIL"), ""),
}
"""The functions of OpenCUA's and ScaleCUA's prompts and data sets; calls of the functions in this table may have no
module."""
_MODULES: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "": (SIGNATURES, FAMILY_SIGNATURES),
    "pyautogui": (SIGNATURES,),
    "computer": (SIGNATURES, FAMILY_SIGNATURES),
    "mobile": (FAMILY_SIGNATURES,),
    "time": ({"sleep": "seconds"},),
}
_OTHER_NAMES = {"msg": "message", "key": "keys", "args": "keys", "amount": "clicks", "page": "clicks"}
"""Other names of arguments that AgentNet's and ScaleCUA's clients accept."""
ENDS = ("terminate", "DONE", "FAIL")
"""Functions that end a trajectory."""
_CONSTANTS = {name.upper(): name for name in ("left", "middle", "right", "primary", "secondary")}


UNSET = ("", "none", "null", "nan", "empty")
"""Texts that models write for a missing argument."""


class NoAction(ValueError):
    """Raised for code that matches no action of this project."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, whose arguments are literals."""

    module: str
    function: str
    given: tuple[Any, ...]
    named: Mapping[str, Any]
    statement: int = 0
    """Number of its statement in the program; all calls of a `with` have the same number."""
    written: str = ""
    """Text of the call in another grammar, for messages; empty if the call is Python."""


@dataclass(frozen=True, slots=True)
class _Name:
    """A function as an argument, such as the one for a pointer's speed."""

    name: str

    def __repr__(self) -> str:
        return self.name


def parse(code: str, own: str = "") -> tuple[list[Call], str]:
    """Lists the calls of a program up to the first statement that is no call, and the reason why it is none."""
    if len(code) > MAX_TEXT:
        return [], f"{len(code):,} characters of code, and at most {MAX_TEXT:,} are read"
    calls: list[Call] = []
    try:
        modules: dict[str, str] = {}
        for number, statement in enumerate(_body(code, own)):
            for call in _calls([statement], modules):
                calls.append(replace(call, statement=number))
                if len(calls) > MAX_CALLS:
                    return calls[:MAX_CALLS], f"more than {MAX_CALLS} calls"
    except NoAction as error:
        return calls, str(error)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        return calls, f"{str(error)[:80]} in {code[:80]!r}"
    return calls, ""


def _parsed(text: str) -> list[ast.stmt]:
    """Parses the statements of a text; raises the errors of `ast.parse`, and ValueError if the nesting is too deep."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # an unknown escape stays unchanged
            return ast.parse(text).body
    except (RecursionError, MemoryError) as error:
        raise ValueError("it is nested too deep") from error


def _body(code: str, own: str) -> Iterator[ast.stmt]:
    """Yields the statements of Python, or the calls in another text; raises NoAction if there is neither."""
    problem, found = "no call", False
    try:
        statements = iter(_parsed(textwrap.dedent(code).strip()) or _loose(code, own))
    except (SyntaxError, ValueError) as error:
        problem, statements = str(error)[:80], _loose(code, own)
    for statement in statements:
        found = True
        yield statement
    if not found:
        raise NoAction(f"{problem} in {code[:80]!r}")


_START = re.compile(
    r"[^\S\n]*+(?:#{0,3}+[^\S\n]*+Code[:：][^\S\n]*+)?"
    r"(?:((?:([A-Za-z_]\w*+)\.)?([A-Za-z_]\w*+))\(|(WAIT|DONE|FAIL)[^\S\n]*+$)",
    re.MULTILINE,
)
"""A call at the beginning of a statement; a line that begins with `#` counts only under the heading `## Code: `."""
_BLOCK = re.compile(
    r"([^\S\n]*+)(?:async[^\S\n]++)?"
    r"(?:if|elif|else|for|while|def|class|with|try|except|finally|match|case)\b([^\n]*+)(?:\n[^\S\n]*+(?:#[^\n]*+)?$)*+"
    r"(?:\n(\1[^\S\n]++)\S)?",
    re.MULTILINE,
)
"""A line that may begin a block, and the indentation of the next line if it is deeper."""
_PIECE = re.compile(r"""('''|\"\"\")|#[^\n]*+|'(?:\\.|[^'\\\n])*+'|"(?:\\.|[^"\\\n])*+"|\\.|[^'"\\#;\n]++|[\s\S]""")
"""A piece of a text: a quote of several lines, a comment, quoted text, other text, or the end of a statement."""
_TOKEN = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[()\[\]{}]|[^'"()\[\]{}]+""", re.DOTALL)
_ONE_TEXT = re.compile(r"""[\w.]+\((?:(\w+)\s*=\s*)?(['"])(.*)\2\s*+\)?\s*+;?\s*+\Z""")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


def _loose(text: str, own: str) -> Iterator[ast.stmt]:
    """Yields the calls at the beginnings of statements, one by one, until a statement begins a block.

    A call may lack the last bracket, and its texts may have unescaped quotes or line ends. Comments and quotes of
    several lines contain no statement.
    """
    at = 0
    while at < len(text):
        if (found := _call_at(text, at, own)) is None:
            at = _after_other(text, at, own)
            continue
        if found[4]:
            yield ast.Expr(ast.Name(found[4]))
            end = found.end()
        else:
            node, end = _one(text, found.start(1), found.end())
            yield node
        at = _next(text, end)


def _call_at(text: str, at: int, own: str) -> re.Match[str] | None:
    """Matches the beginning of a call of a known module, or of a known function without one."""
    found = _START.match(text, at)
    if found and (found[4] or found[2] in _MODULES or (own and found[2] == own) or (not found[2] and _known(found[3]))):
        return found
    return None


def _after_other(text: str, at: int, own: str) -> int:
    """Finds the start of the statement after a statement that is no call.

    Raises NoAction if that statement begins a block, since the block's body may be on the same line.
    """
    block = _BLOCK.match(text, at)
    if block is None:
        return _next(text, at)
    colons = (found.end() for found in re.finditer(":", block[2]))
    if block[3] or any(_call_at(text, block.start(2) + colon, own) for colon in colons):
        raise NoAction(f"{block[0].strip().partition(chr(10))[0][:60]} is no call")
    return block.end(2)


def _next(text: str, at: int) -> int:
    """Finds the start of the next statement, after the end of a line or a semicolon."""
    while piece := _PIECE.match(text, at):
        at = piece.end()
        if piece[1]:
            closed = text.find(piece[1], at)
            at = closed + 3 if closed >= 0 else len(text)
        elif piece[0] in ("\n", ";"):
            break
    return at


def _known(function: str) -> bool:
    return any(function in signatures for signatures in _MODULES[""])


def _one(text: str, begin: int, opened: int) -> tuple[ast.stmt, int]:
    """Parses the call that begins at `begin`, and finds its end; raises NoAction if there is no call."""
    line_end = text.find("\n", begin)
    line_end = len(text) if line_end < 0 else line_end
    line = text[begin:line_end].strip()
    tries = [(f"{line})", line_end), (f"{line.rstrip(';')})", line_end)]
    if (closed := _closing(text, opened)) is not None:
        tries.insert(0, (closed[0] and text[begin:opened] + closed[0], closed[1]))
    for piece, end in tries:
        try:
            (node,) = _parsed(piece)
            return node, end
        except (SyntaxError, ValueError):
            continue
    if found := _ONE_TEXT.match(line):
        content = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), found[3])
        keywords = [ast.keyword(found[1], ast.Constant(content))] if found[1] else []
        (node,) = _parsed(f"{text[begin:opened]})")
        call = cast(ast.Call, cast(ast.Expr, node).value)
        call.args, call.keywords = [] if keywords else [ast.Constant(content)], keywords
        return node, line_end
    raise NoAction(f"no call in {line[:80]!r}")


def _closing(text: str, at: int) -> tuple[str, int] | None:
    """Finds the text from an open bracket to the closing bracket, and its end; None if no bracket closes it.

    Line ends within quotes are escaped as in Python.
    """
    depth, pieces, last = 1, [], at + MAX_CALL
    while depth and (token := _TOKEN.match(text, at, last)):
        piece, at = token[0], token.end()
        depth += (piece in "([{") - (piece in ")]}")
        pieces.append(piece.replace("\n", "\\n") if piece[0] in "'\"" else piece)
    return None if depth else ("".join(pieces), at)


def _calls(body: Iterable[ast.stmt], modules: dict[str, str]) -> Iterator[Call]:
    """Yields the calls of statements; adds to `modules` the names that imports give to modules."""
    for node in body:
        if isinstance(node, ast.Import):
            modules |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom | ast.Pass) or _is_setting(node):
            continue
        elif isinstance(node, ast.With):
            keys = [key for item in node.items for key in _held(item, modules)]
            yield from (Call("pyautogui", "keyDown", (key,), {}) for key in keys)
            yield from _calls(node.body, modules)
            yield from (Call("pyautogui", "keyUp", (key,), {}) for key in reversed(keys))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Name) and node.value.id in ("WAIT", *ENDS[1:]):
            yield Call("", node.value.id, (), {})
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield _call(node.value, modules)
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            raise NoAction(f"{_short(node)} is no call")


def _is_setting(node: ast.stmt) -> bool:
    """Checks whether a statement only sets pyautogui's speed or safety."""
    return isinstance(node, ast.Assign) and all(
        isinstance(one, ast.Attribute) and one.attr in ("PAUSE", "FAILSAFE") for one in node.targets
    )


def _held(item: ast.withitem, modules: Mapping[str, str]) -> list[Any]:
    call = _call(item.context_expr, modules) if isinstance(item.context_expr, ast.Call) else None
    if call is None or (call.module, call.function) not in (("pyautogui", "hold"), ("", "hold")):
        raise NoAction(f"`with {_short(item.context_expr)}` is no action")
    return listed(arguments(call).get("keys"))


def _short(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0][:60]


def _call(call: ast.Call, modules: Mapping[str, str]) -> Call:
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        module, name = modules.get(function.value.id, function.value.id), function.attr
    elif isinstance(function, ast.Name):
        module, name = "", function.id
    else:
        raise NoAction(f"{_short(function)} is no function")
    if any(word.arg is None for word in call.keywords):
        raise NoAction(f"{_short(call)} has arguments that are no literals")
    words = [str(word.arg) for word in call.keywords]
    if twice := next((word for word in words if words.count(word) > 1), ""):
        raise NoAction(f"{name} has the argument {twice!r} twice")
    named = {str(word.arg): _literal(word.value) for word in call.keywords}
    return Call(module, name, tuple(map(_literal, call.args)), named)


def _literal(node: ast.expr) -> Any:
    """Evaluates an argument: a constant of pyautogui to its value, and any other name to a name."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    if name:
        if isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Name):
            raise NoAction(f"{_short(node)} is no literal")
        return _CONSTANTS.get(name) or _Name(name)
    if isinstance(node, ast.JoinedStr) and all(isinstance(one, ast.Constant) for one in node.values):
        return "".join(str(one.value) for one in node.values if isinstance(one, ast.Constant))
    try:
        value = ast.literal_eval(node)
        repr(value)  # raises for a number with too many digits to be named
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise NoAction(f"{_short(node)} is no literal") from error
    return value


def is_known(call: Call) -> bool:
    """Checks whether the grammar has the function of a call."""
    return any(call.function in table for table in _MODULES.get(call.module, ()))


def arguments(call: Call) -> dict[str, Any]:
    """Binds the arguments of a call to their names; raises NoAction for arguments that the function lacks."""
    known = [table[call.function] for table in _MODULES.get(call.module, ()) if call.function in table]
    if not known:
        raise NoAction(f"not supported: {call.module + '.' if call.module else ''}{call.function}")
    problems: list[str] = []
    for signature in known:
        try:
            return _fitted(call, signature.split())
        except NoAction as error:
            problems.append(str(error))
    raise NoAction(problems[0])


def _fitted(call: Call, names: Sequence[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if names and names[0].startswith("*"):
        names, given = ["keys", *names[1:]], {"keys": list(call.given)} if call.given else {}
    elif len(call.given) > len(names):
        raise NoAction(f"{call.function} takes {len(names)} arguments and is given {len(call.given)}")
    else:
        given = dict(zip(names, call.given, strict=False))
    for word, value in call.named.items():
        name = word if word in names else _OTHER_NAMES.get(word, word)
        if name not in names:
            raise NoAction(f"{call.function} has no argument {word!r}")
        if name in given:
            raise NoAction(f"{call.function} has the argument {word!r} twice")
        given[name] = value
    for name, value in given.items():
        _check(call.function, name, value)
    return given


def _check(function: str, name: str, value: Any) -> None:
    """Raises NoAction if an argument's value is of the wrong kind."""
    if value is None:
        return
    if isinstance(value, _Name) != (name == "tween"):
        raise NoAction(f"{value!r:.60} is no {'literal' if isinstance(value, _Name) else f'tween of {function}'}")
    if not _KINDS.get(name, _any)(value):
        raise NoAction(f"{value!r:.60} is no {name} of {function}")


def _any(value: Any) -> bool:
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    return _is_number(value) and abs(value) < 1e9


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and _is_finite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_place(value: Any) -> bool:
    items = cast(Sequence[Any], value) if isinstance(value, list | tuple) else ()
    return len(items) in (2, 4) and all(map(_is_finite, items))


def _is_number_or_place(value: Any) -> bool:
    return _is_number(value) or _is_place(value)


def _is_text_or_texts(value: Any) -> bool:
    return all(map(_is_text, cast(Sequence[Any], value) if isinstance(value, list | tuple) else [value]))


def _is_button(value: Any) -> bool:
    return _is_text(value) or _is_whole(value)


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("x", "xOffset"), _is_number_or_place),
    **dict.fromkeys(("y", "yOffset"), _is_number),
    **dict.fromkeys(("clicks", "interval", "duration", "seconds", "amount"), _is_finite),
    **dict.fromkeys(("key", "app_name", "url", "answer", "status", "info", "content", "direction"), _is_text),
    **dict.fromkeys(("from_coord", "to_coord"), _is_place),
    "presses": _is_whole,
    "button": _is_button,
    "message": _is_text_or_texts,
}
"""Check of each argument's value."""


def listed(keys: Any) -> list[Any]:
    """Lists key names, as pyautogui accepts either one name or several; also flattens a list in an argument for
    several."""
    names = list(cast(Sequence[Any], keys)) if isinstance(keys, list | tuple) else [] if keys is None else [keys]
    inner = names[0] if len(names) == 1 and isinstance(names[0], list | tuple) else names
    if not all(isinstance(one, str) for one in cast(Sequence[Any], inner)):
        raise NoAction(f"{keys!r} are no keys")
    return list(cast(Sequence[Any], inner))


def is_unset(value: object) -> bool:
    """Return whether a value is none: null, NaN, or a text that models and tools write for it; also a list of such
    values."""
    if isinstance(value, list | tuple):
        return all(map(is_unset, cast(Sequence[object], value)))
    return value is None or value != value or (isinstance(value, str) and value.strip().lower() in UNSET)


def names_no_key(value: object) -> bool:
    """Return whether an argument for keys is unset; a single blank names the space key."""
    if isinstance(value, list | tuple):
        return all(map(names_no_key, cast(Sequence[object], value)))
    return is_unset(value) and not (isinstance(value, str) and value in BLANKS)
