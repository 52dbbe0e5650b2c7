"""Change a Python source in one place, as a slip of its author would.

A mutation replaces a few characters, so the rest of the file keeps its text. The operators are those of mutation
testing: comparisons, arithmetic, conditions, constants, names of similar functions, and removed statements. Only bodies
of functions are changed.

Source: DeMillo, Lipton and Sayward, "Hints on test data selection", Computer 11(4), 1978.
"""

import ast
import random
import re
from dataclasses import dataclass

_COMPARES: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.Div: ("/", "//"), ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "//"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}  # fmt: skip
_PAIRS = (
    ("lstrip", "rstrip"), ("lower", "upper"), ("startswith", "endswith"), ("find", "rfind"), ("min", "max"),
    ("any", "all"), ("partition", "rpartition"), ("removeprefix", "removesuffix"), ("append", "extend"),
    ("floor", "ceil"), ("match", "fullmatch"), ("index", "rindex"), ("ljust", "rjust"),
)  # fmt: skip
_LIKE = {name: other for pair in _PAIRS for name, other in (pair, pair[::-1])} | {"strip": "lstrip"}
"""Names of functions that are mistaken for each other."""
_SEPARATORS = {"-": "_", "_": "-", ",": ";", ".": ",", "/": "-", " ": "", "": " ", ":": ";", "=": ":", "\n": " "}


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of one place in a file."""

    path: str
    """Path of the file in its repository."""
    function: str
    """Qualified name of the function that is changed."""
    line: int
    begin: int
    end: int
    """Bytes `begin` to `end` of the file are replaced."""
    text: str
    """The new text."""

    def applied(self, source: bytes) -> bytes:
        """Returns the changed source."""
        return source[: self.begin] + self.text.encode() + source[self.end :]


def mutations(path: str, source: bytes) -> list[Mutation]:
    """Lists all mutations of a file, in the order of its text; empty for a file that Python cannot parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    if b"\r" in source or b"\f" in source:  # Python counts their lines in another way
        return []
    finder = _Finder(path, source)
    finder.visit(tree)
    found = {(one.begin, one.end, one.text): one for one in finder.found}
    return [found[key] for key in sorted(found)]


def shuffled(found: list[Mutation], chance: random.Random) -> list[Mutation]:
    """Returns mutations in random order, with functions in turn, so that no large function dominates."""
    order = found.copy()
    chance.shuffle(order)
    turns: dict[tuple[str, str], int] = {}
    ranked = list[tuple[int, int]]()
    for at, one in enumerate(order):
        turn = turns[one.path, one.function] = turns.get((one.path, one.function), -1) + 1
        ranked.append((turn, at))
    return [order[at] for _, at in sorted(ranked)]


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.found: list[Mutation] = []
        self._names: list[str] = []
        self._depth = 0
        self._starts = [0]
        for line in source.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._names.append(node.name)
        self._depth += 1
        for number, statement in enumerate(node.body):
            if number or not _is_text(statement):
                self.visit(statement)
        self._depth -= 1
        self._names.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leaves f-strings unchanged: before Python 3.12 their parts have no places in the source."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            self._between(node.left, node.comparators[0], *_COMPARES[type(node.ops[0])])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, old, new)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = any(isinstance(one, ast.JoinedStr) or _is_constant(one, str) for one in (node.left, node.right))
        if type(node.op) in _ARITHMETIC and not texts:
            self._between(node.left, node.right, *_ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.op, ast.Add | ast.Sub):
            self._between(node.target, node.value, *(("+=", "-=") if isinstance(node.op, ast.Add) else ("-=", "+=")))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            begin, end = self._span(node)[0], self._span(node.operand)[0]
            if self.source[begin:end].strip() == b"not":
                self._add(node, begin, end, "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, *self._span(node), str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, *self._span(node), str(node.value + 1))
            if node.value > 0:
                self._add(node, *self._span(node), str(node.value - 1))
        elif isinstance(node.value, str) and node.value in _SEPARATORS:
            self._add(node, *self._span(node), repr(_SEPARATORS[node.value]))

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        if not isinstance(node.test, ast.Compare | ast.UnaryOp):
            begin, end = self._span(node.test)
            self._add(node.test, begin, end, f"not ({self.source[begin:end].decode()})")
        self.generic_visit(node)

    visit_IfExp = visit_If

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name | ast.Attribute):
            end = self._span(node.func)[1]
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in _LIKE:
                self._add(node, end - len(name.encode()), end, _LIKE[name])
        if len(node.args) == 2 and all(isinstance(one, ast.Name) for one in node.args):
            (begin, middle), (other, end) = map(self._span, node.args)
            first, gap, second = self.source[begin:middle], self.source[middle:other], self.source[other:end]
            self._add(node, begin, end, (second + gap + first).decode())
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._add(node, *self._span(node), "pass")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, *self._span(node), "break")

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Replaces an operator between two expressions, if the text between them has it once."""
        begin, end = self._span(left)[1], self._span(right)[0]
        gap = self.source[begin:end].decode()
        pattern = rf"\b{old}\b".replace(" ", r"\s+") if old[0].isalpha() else re.escape(old)
        places = list(re.finditer(pattern, gap))
        if len(places) == 1 and "#" not in gap:
            at = begin + len(gap[: places[0].start()].encode())
            self._add(left, at, at + len(places[0][0].encode()), new)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _add(self, node: ast.expr | ast.stmt, begin: int, end: int, text: str) -> None:
        if self._depth:
            self.found.append(Mutation(self.path, ".".join(self._names), node.lineno, begin, end, text))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and _is_constant(statement.value, str)


def _is_constant(node: ast.expr, kind: type) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, kind)
