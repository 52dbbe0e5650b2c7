"""OSWorld's own evaluators and ours say the same of thousands of answers, where FLYWHEEL_OSWORLD_PATH names a folder
with `desktop_env` (docs/desktop.md).

Only the functions themselves are taken from its files: the rest of them wants packages that do not fit here.
"""

import ast
import difflib
import json
import logging
import os
import random
import re
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from environments.osworld.scores import OF_FILES, SCORES
from tests.tiers import lacks

OSWORLD = os.environ.get("FLYWHEEL_OSWORLD_PATH")
pytestmark = pytest.mark.skipif(
    OSWORLD is None,
    reason=lacks("no desktop_env in FLYWHEEL_OSWORLD_PATH", "pip download desktop-env (docs/osworld.md)"),
)
TIMES = 5_000
ENDS = ["\n", "\r\n", "\r"]
WORDS = [
    "a",
    "b",
    "A",
    "ab",
    "x y",
    "'",
    '"',
    " ",
    "\t",
    *ENDS,
    "\x0b",
    "\x1c",
    "\x85",
    "\u2028",
    "\xa0",
    "é",
    "1",
    "$",
]
PATTERNS = ["a", "^a", "b$", r"\s$", r"^\s*$", "a.b", "é", r"\n", "[xy]"]


def evaluator(name: str) -> Callable[..., float]:
    """OSWorld's function of that name."""
    known: dict[str, Any] = {
        **vars(typing), "re": re, "json": json, "difflib": difflib, "logger": logging.getLogger("osworld"),
        "print": lambda *_: None,
    }  # fmt: skip
    for file in ("general.py", "vscode.py"):
        tree = ast.parse(Path(f"{OSWORLD}/desktop_env/evaluators/metrics/{file}").read_text())
        tree.body = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name]
        exec(compile(tree, file, "exec"), known)
    return known[name]


class Chance(random.Random):
    def text(self, most: int = 5) -> str:
        return "".join(self.choices(WORDS, k=self.randint(0, most)))

    def texts(self) -> list[str]:
        return [self.text(2) for _ in range(self.randint(0, 3))]

    def value(self) -> Any:
        kinds = [self.text, self.texts, dict, lambda: None, lambda: self.randint(0, 2), lambda: True]
        found = self.choice(kinds)()
        return {one: self.text(1) for one in self.texts()} if found == {} else found

    def fields(self) -> dict[str, Any]:
        return {name: self.value() for name in self.sample(["a", "b", "c", "ignore_list_order"], self.randint(0, 2))}

    def file(self, like: str | None = None) -> bytes | None:
        text = self.text(8) if like is None or self.random() < 0.3 else re.sub("\r\n|\r|\n", self.choice(ENDS), like)
        text = re.sub(r"[ \t\n]", lambda _: self.choice(" \t\n"), text) if self.random() < 0.2 else text
        text = text.swapcase() if self.random() < 0.1 else text
        return None if self.random() < 0.03 else text.encode() + b"\xff" * (self.random() < 0.03)

    def options(self, *names: str) -> dict[str, Any]:
        return {name: self.random() < 0.5 for name in names if self.random() < 0.5}


def drawn(score: str, chance: Chance) -> tuple[Any, Any, dict[str, Any]]:
    """What may be read, what is expected, and options."""
    texts, options = chance.texts(), {}
    rules: Any = {"expected": chance.choice([chance.text(2), texts])}
    if score in ("compare_text_file", "diff_text_file"):
        like = chance.text(8)
        if score == "compare_text_file":
            options = chance.options("ignore_blanks", "ignore_case", "another")
        return chance.file(like), chance.file(like) or b"", options
    if score in OF_FILES:
        patterns = {name: chance.choices(PATTERNS, k=chance.randint(0, 2)) for name in ("expect", "unexpect")}
        return chance.file(), rules if score == "file_contains" else patterns, {}
    if score == "check_include_exclude":
        return (
            chance.choice([chance.text(), texts, chance.fields(), None]),
            {"include": texts, "exclude": chance.texts()[:1]},
            {},
        )
    if score == "check_direct_json_object":
        wanted, held = chance.fields(), chance.fields()
        shared = {key: one for key, one in wanted.items() if chance.random() < 0.7}
        read = chance.choice([held | shared, json.dumps(held | shared), str(held | shared), chance.value()])
        return read, {"expected": wanted, **chance.options("expect_in_result")}, {}
    if score == "literal_match":
        options = {**chance.options("ignore_case", "another"), "type": chance.choice(["str", "list"])}
        wanted = chance.value()
        return chance.choice([wanted, str(wanted), str(wanted).swapcase(), chance.value()]), wanted, options
    if score == "match_in_list":
        return chance.choice([*texts, chance.value()]), rules, {}
    return chance.choice([rules["expected"], chance.value()]), rules, {}


@pytest.mark.parametrize("score", SCORES)
def test_a_score_is_osworld_s_own_for_thousands_of_answers_and_0_where_that_raises(tmp_path: Path, score: str) -> None:
    theirs, chance, seen = evaluator(score), Chance(score), list[float]()
    for _ in range(TIMES):
        read, expected, options = drawn(score, chance)
        paths = list[Any]()
        for name, content in (("read", read), ("expected", expected)):
            path = tmp_path / name
            if isinstance(content, bytes):
                path.write_bytes(content)
            paths.append(str(path) if isinstance(content, bytes) else content)
        try:
            worth = float(theirs(*paths, **options))
        except (TypeError, ValueError, AttributeError):
            worth = 0.0
        assert SCORES[score](read, expected, **options) == worth, (read, expected, options)
        seen.append(worth)
    assert min(seen) == 0 and sum(one > 0 for one in seen) > TIMES / 50
