"""Twins of tests, and the folders that tests need."""

from pathlib import Path

from environments.hybrid.repair.suites import OTHER, files_of, libraries, successful, twin

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
    assert text.count(OTHER) == 3 and "total([1]) == 1" in text
    assert f"assert total([]) == (\n        {OTHER}\n    )" in text
    assert twin(b"def broken(:", ["test_one"]) == ("", ())


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
