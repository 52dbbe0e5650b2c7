"""Mutations of a Python source: one place each, only in bodies of functions."""

import ast
import random

import pytest

from environments.hybrid.repair.mutation import mutations, shuffled

SOURCE = b'''"""A module."""
LIMIT = 3


class Box:
    """A box."""

    size: int = 4

    def grow(self, by=1):
        """Grow by 1."""
        if by < 2 and not self.size == LIMIT:
            self.size += by * 2
        return f"{1 + 1}"  # caf\xc3\xa9


def low(text, other, /):
    for one in text:
        if one is None:
            continue
        print(one)
    return max(text, other).lstrip("-"), True
'''


def changed() -> set[str]:
    """The lines that mutations make out of lines of the source."""
    old = SOURCE.decode().splitlines()
    new = [one.applied(SOURCE).decode().splitlines() for one in mutations("box.py", SOURCE)]
    return {line.strip() for lines in new for line, was in zip(lines, old, strict=True) if line != was}


def test_each_mutation_changes_one_line_of_a_function() -> None:
    found = mutations("box.py", SOURCE)
    assert {one.function for one in found} == {"Box.grow", "low"}
    for one in found:
        ast.parse(one.applied(SOURCE))
        pairs = zip(SOURCE.split(b"\n"), one.applied(SOURCE).split(b"\n"), strict=True)
        (line,) = [number for number, (was, now) in enumerate(pairs, 1) if was != now]
        assert line == one.line
    assert not {one.line for one in found} & {2, 8, 11, 14}, "constants, docstrings and f-strings stay"


@pytest.mark.parametrize(
    "line",
    [
        "if by <= 2 and not self.size == LIMIT:",
        "if by < 2 or not self.size == LIMIT:",
        "if by < 2 and self.size == LIMIT:",
        "if by < 2 and not self.size != LIMIT:",
        "self.size -= by * 2",
        "self.size += by + 2",
        "self.size += by * 3",
        "if one is not None:",
        "break",
        "pass",
        'return max(text, other).rstrip("-"), True',
        'return min(text, other).lstrip("-"), True',
        'return max(other, text).lstrip("-"), True',
        "return max(text, other).lstrip('_'), True",
        'return max(text, other).lstrip("-"), False',
    ],
)
def test_operators_are_those_of_slips(line: str) -> None:
    assert line in changed()


def test_a_file_that_is_no_python_has_none() -> None:
    assert mutations("a.py", b"def broken(:\n") == []
    assert mutations("a.py", b"def f():\r\n    return 1\r\n") == []


def test_the_first_of_a_random_order_are_of_different_functions() -> None:
    order = shuffled(mutations("box.py", SOURCE), random.Random(1))
    assert {one.function for one in order[:2]} == {"Box.grow", "low"}
    assert order == shuffled(mutations("box.py", SOURCE), random.Random(1))
