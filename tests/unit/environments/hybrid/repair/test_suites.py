"""Twins of tests, and the folders that tests need."""

import ast
from pathlib import Path
from typing import Any

import pytest

from environments.hybrid.repair.suites import MAX_COPIES, files_of, flywheel_another, libraries, successful, twin

SOURCE = b"""import unittest


def test_one():
    assert total([1, 2]) == 3  # caf\xc3\xa9
    assert total([]) == (
        0
    )
    assert total


def test_two():
    assert total([1]) == 1


class Totals(unittest.TestCase):
    def test_three(self):
        self.assertEqual(total([2]), 2)
        self.assertTrue(total([2]))
"""


def test_a_twin_has_another_right_answer_in_the_named_tests() -> None:
    text, names = twin(SOURCE, ["test_one[a]", "Totals::test_three", "test_none"])
    assert names == ("test_one", "Totals::test_three")
    assert "total([1, 2]) == 4  # caf\u00e9" in text and "total([1]) == 1" in text
    assert "assert total([]) == (\n        1\n    )" in text and "self.assertEqual(total([2]), 3)" in text
    assert twin(b"def broken(:", ["test_one"]) == ("", ())


def test_a_twin_has_a_copy_for_each_right_answer_of_a_separate_test() -> None:
    text, names = twin(SOURCE, ["test_one", "Totals::test_three"], ["test_one[a]"])
    assert names == ("test_one", "test_one_1", "Totals::test_three")
    one, two = ast.parse(text).body[1:3]
    assert "total([1, 2]) == 4" in ast.unparse(one) and "total([]) == 0" in ast.unparse(one)
    assert "total([1, 2]) == 3" in ast.unparse(two) and "total([]) == 1" in ast.unparse(two)
    many = "\n".join(f"    assert total({number}) == {number}" for number in range(30))
    text, names = twin(f"@mark\ndef test_many():\n{many}\n".encode(), ["test_many"], ["test_many"])
    assert len(names) == MAX_COPIES and text.count("@mark") == MAX_COPIES


@pytest.mark.parametrize(
    ("test", "changed"),
    [
        ("assert f(1) == -2", "assert f(1) == -1"), ("assert 'a' == f(1)", "assert 'b' == f(1)"),
        ("assert f(1) == [1, 2]", "assert f(1) == [2, 2]"),
        ("assert wanted == f(1)", "flywheel_another(wanted) == f(1)"),
        ("assert f(1) == wanted", "f(1) == flywheel_another(wanted)"),
        ("assert f(1) == g(2)", "f(1) == flywheel_another(g(2))"), ("assert f(1) == None", "== ('another', 'answer')"),
    ],
)  # fmt: skip
def test_the_known_side_of_a_comparison_changes(test: str, changed: str) -> None:
    text, names = twin(f"def test_a():\n    {test}\n".encode(), ["test_a"])
    assert names == ("test_a",) and changed in text


@pytest.mark.parametrize(
    "value", [True, 0, -1, 0.0, -1.5, float("inf"), 2j, "", "a", "A", "19", b"", b"a", [], [[]], (), (1, 2), set(), {1},
              frozenset({2}), {}, {1: "a"}],
)  # fmt: skip
def test_another_answer_has_the_same_type_and_differs(value: object) -> None:
    other = flywheel_another(value)
    assert type(other) is type(value) and other != value
    kept: dict[str, Any] = {}
    exec(twin(b"def test_a():\n    assert f() == wanted\n", ["test_a"])[0], kept)
    assert kept["flywheel_another"](value) == other, "a twin has the same function"


def test_certain_twins_only_change_assertions_that_always_run() -> None:
    source = b"""
def test_direct():
    assert f(1) == 2
    for one in many():
        assert f(one) == 3


def test_nested():
    with context():
        assert f(1) == 2


def test_early():
    if not here():
        return
    assert f(1) == 2
"""
    names = ("test_direct", "test_nested", "test_early")
    text, changed = twin(source, names, names, certain=True)
    assert changed == ("test_direct",) and "f(1) == 3" in text and "f(one) == 3" in text
    assert twin(b"# xfail\n" + source, names, certain=True) == ("", ())
    assert twin(source, names)[1] == names


def test_an_expected_failure_is_a_success_only_if_the_test_file_marks_one() -> None:
    reports = {"a.py::test_a": "xfailed", "b.py::test_b": "xfailed", "b.py::test_c": "passed", "a.py::test_d": "failed"}
    files = {"a.py": b"@pytest.mark.xfail\ndef test_a(): ...", "b.py": b"def test_b(): ..."}
    assert successful([*reports, "a.py::test_e"], reports, files) == ["a.py::test_a", "b.py::test_c"]


def test_files_of_tests_are_listed_once() -> None:
    assert files_of(["a/test_b.py::test_c[x::y]", "a/test_b.py::D::test_e", "test_f.py::test_g"]) == (
        "a/test_b.py",
        "test_f.py",
    )


def test_a_repository_s_own_copy_is_not_mounted(tmp_path: Path) -> None:
    for name in ("pytest", "lamps", "lamps-1.0.dist-info", "six.py", "__pycache__"):
        (tmp_path / name).mkdir()
    mounts = libraries(str(tmp_path), True, frozenset({"lamps"}))
    assert [inside for _, inside in mounts.readable] == ["/opt/libraries/pytest", "/opt/libraries/six.py"]
    assert libraries("", False, frozenset()).readable == ()
    own = libraries("", True, frozenset()).readable
    assert any(inside == "/opt/libraries/pytest" for _, inside in own)
