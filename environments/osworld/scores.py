"""Compute the supported scores of OSWorld, from a reading to [0, 1], as OSWorld's evaluators of the same name do.

A reading is the bytes of a file for the scores of `OF_FILES`, and text or parsed JSON for the others; None if there is
none. The expected value is the task's own `rules`, or a file. No score raises for any answer of a machine. Some scores
of OSWorld raise, so that its episode has no score; in this project, the score is 0.
"""

import difflib
import io
import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any


def _rows(read: Any) -> list[str] | None:
    """Returns the lines of a file as `open` does, each with `\\n` for any line end; None if the file is no text."""
    if not isinstance(read, bytes):
        return None
    try:
        return list(io.TextIOWrapper(io.BytesIO(read), "utf-8"))
    except UnicodeDecodeError:
        return None


def _texts(*read: Any) -> list[str] | None:
    rows = [_rows(one) for one in read]
    return None if None in rows else ["".join(one or ()) for one in rows]


def _holds(whole: Any, part: Any) -> bool:
    """Whether a part is in a text, a list, or the names of an object."""
    if isinstance(whole, str):
        return isinstance(part, str) and part in whole
    return isinstance(whole, list | dict) and part in list(whole)


def exact_match(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether the reading equals the expected value."""
    return float(read == rules["expected"])


def match_in_list(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether the reading is one of the expected values, or a part of the expected text."""
    return float(_holds(rules["expected"], read))


def is_in_list(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether the reading contains the expected value."""
    return float(_holds(read, rules["expected"]))


def literal_match(read: Any, expected: Any, type: str = "str", ignore_case: bool = False, **ignored: Any) -> float:
    """Returns 1 if both are the same text, or lists of the same texts, else 0; raises ValueError for another type."""

    def as_text(one: Any) -> str:
        return str(one).lower() if ignore_case else str(one)

    if type == "str":
        return float(as_text(read) == as_text(expected))
    if type != "list":
        raise ValueError(f"literal_match of type {type}")
    if not isinstance(read, list) or not isinstance(expected, list):
        return 0.0
    return float([as_text(one) for one in read] == [as_text(one) for one in expected])


def check_include_exclude(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether the reading holds everything of `include`, and nothing of `exclude`."""
    if not isinstance(read, str | list | dict):
        return 0.0
    held = all(_holds(read, one) for one in rules.get("include", ()))
    return float(held and not any(_holds(read, one) for one in rules.get("exclude", ())))


def check_list(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether each pattern of `expect` is found in a line of the file, and no pattern of `unexpect` in any line."""
    if (rows := _rows(read)) is None:
        return 0.0

    def found(pattern: str) -> bool:
        return any(re.search(pattern, row) for row in rows)

    return float(all(map(found, rules.get("expect", ()))) and not any(map(found, rules.get("unexpect", ()))))


def file_contains(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether the file holds every expected text; a text instead of a list stands for its characters."""
    texts = _texts(read)
    return float(texts is not None and all(one in texts[0] for one in rules["expected"]))


def compare_text_file(
    read: Any, expected: Any, ignore_blanks: bool = False, ignore_case: bool = False, **ignored: Any
) -> float:
    """Whether two files hold the same text."""
    if (texts := _texts(read, expected)) is None:
        return 0.0
    if ignore_blanks:
        texts = [" ".join(text.split()) for text in texts]
    if ignore_case:
        texts = [text.lower() for text in texts]
    return float(texts[0] == texts[1])


def diff_text_file(read: Any, expected: Any) -> float:
    """Returns the ratio of equal lines of two files, from 0 to 1."""
    if (texts := _texts(read, expected)) is None:
        return 0.0
    return difflib.SequenceMatcher(a=texts[0].splitlines(), b=texts[1].splitlines()).ratio()


def check_direct_json_object(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether a JSON object has every expected field; with `expect_in_result`, whether it holds each as a part.

    As in OSWorld, `'` is read as `"`, and `ignore_list_order` is one of the expected fields, so that only sortable
    fields can pass with it.
    """
    try:
        held = json.loads(read.strip().replace("'", '"')) if isinstance(read, str) else read
    except (ValueError, RecursionError):
        return 0.0
    wanted: Mapping[str, Any] = rules["expected"]
    if held is None or _FAILED in wanted.values():
        return 0.0
    if not wanted:
        return 1.0
    if not isinstance(held, dict):
        return 0.0
    same = _part if rules.get("expect_in_result") else _same_items if wanted.get("ignore_list_order") else operator.eq
    return float(all(same(one, held.get(key)) for key, one in wanted.items()))


def _part(wanted: Any, held: Any) -> bool:
    """Whether `held` equals or contains an item of a list, or contains a text."""
    if isinstance(wanted, list):
        return any(one == held if isinstance(held, str) else isinstance(held, list) and one in held for one in wanted)
    return isinstance(wanted, str) and _holds(held, wanted)


def _same_items(wanted: Any, held: Any) -> bool:
    try:
        return sorted(wanted) == sorted(held)
    except TypeError:
        return False


_FAILED = "__EVALUATION_FAILED__"
"""OSWorld's marker for an expected value that could not be read."""
SCORES: Mapping[str, Callable[..., float]] = {
    score.__name__: score
    for score in (
        exact_match, match_in_list, is_in_list, literal_match, check_include_exclude, check_list, file_contains,
        compare_text_file, diff_text_file, check_direct_json_object,
    )
}  # fmt: skip
"""Supported scores by OSWorld's name."""
OF_FILES = frozenset({"check_list", "file_contains", "compare_text_file", "diff_text_file"})
"""Scores that open the reading as a file; to other scores, OSWorld passes the path instead of the content."""
