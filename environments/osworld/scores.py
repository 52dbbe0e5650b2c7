"""OSWorld's scores that are known here, each as its evaluator of that name says: from what was read to [0, 1].

What was read is text, bytes of a file, a list, or None where there is none of it; what is expected is the task's own
`rules`, or a file. None of them raises for what a machine may answer: it is scored 0.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any


def _text(read: Any) -> str:
    return read.decode(errors="replace") if isinstance(read, bytes) else str(read)


def exact_match(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether it is what is expected."""
    return float((_text(read) if isinstance(read, bytes) else read) == rules["expected"])


def match_in_list(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether it is one of what is expected."""
    return float(read in rules["expected"])


def is_in_list(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether what is expected is in it."""
    return float(rules["expected"] in (_text(read) if isinstance(read, bytes) else read or ()))


def literal_match(read: Any, expected: Any, type: str = "str", ignore_case: bool = False) -> float:
    """Whether both are the same text, or lists of the same texts."""

    def as_text(one: Any) -> str:
        return _text(one).lower() if ignore_case else _text(one)

    if type == "str":
        return float(as_text(read) == as_text(expected))
    if not isinstance(read, list | tuple) or not isinstance(expected, list | tuple):
        return 0.0
    return float([as_text(one) for one in read] == [as_text(one) for one in expected])


def check_include_exclude(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether it holds every text of `include`, and none of `exclude`."""
    if read is None:
        return 0.0
    text = _text(read)
    held = all(one in text for one in rules.get("include", ()))
    return float(held and not any(one in text for one in rules.get("exclude", ())))


def check_list(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether each pattern of `expect` is found in a line of the file, and none of `unexpect` in any."""
    if read is None:
        return 0.0
    rows = _text(read).splitlines()

    def found(pattern: str) -> bool:
        return any(re.search(pattern, row) for row in rows)

    return float(all(map(found, rules.get("expect", ()))) and not any(map(found, rules.get("unexpect", ()))))


def file_contains(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether the file holds every expected text."""
    expected = rules["expected"]
    wanted = [expected] if isinstance(expected, str) else expected
    return float(bool(read) and all(one in _text(read) for one in wanted))


def compare_text_file(read: Any, expected: Any, ignore_blanks: bool = False, ignore_case: bool = False) -> float:
    """Whether two files hold the same text."""
    if not read or expected is None:
        return 0.0
    texts = [_text(read), _text(expected)]
    if ignore_blanks:
        texts = [" ".join(text.split()) for text in texts]
    if ignore_case:
        texts = [text.lower() for text in texts]
    return float(texts[0] == texts[1])


def diff_text_file(read: Any, expected: Any) -> float:
    """The part of two files' lines that is the same."""
    if read is None or expected is None:
        return 0.0
    return difflib.SequenceMatcher(a=_text(read).splitlines(), b=_text(expected).splitlines()).ratio()


def check_direct_json_object(read: Any, rules: Mapping[str, Any]) -> float:
    """Whether a JSON object has every expected field; with `expect_in_result`, holds it as a part."""
    try:
        held = json.loads(_text(read)) if isinstance(read, str | bytes) else read
    except ValueError:
        return 0.0
    if not isinstance(held, dict):
        return 0.0
    within = bool(rules.get("expect_in_result"))
    return float(all(_as_expected(wanted, held.get(key), within) for key, wanted in rules["expected"].items()))


def _as_expected(wanted: Any, held: Any, within: bool) -> bool:
    if not within:
        return wanted == held
    if isinstance(wanted, list):
        return isinstance(held, list) and any(one in held for one in wanted)
    return isinstance(wanted, str) and isinstance(held, str | list) and wanted in held


SCORES: Mapping[str, Callable[..., float]] = {
    "exact_match": exact_match,
    "match_in_list": match_in_list,
    "is_in_list": is_in_list,
    "literal_match": literal_match,
    "check_include_exclude": check_include_exclude,
    "check_list": check_list,
    "file_contains": file_contains,
    "compare_text_file": compare_text_file,
    "diff_text_file": diff_text_file,
    "check_direct_json_object": check_direct_json_object,
}
"""By OSWorld's name."""
