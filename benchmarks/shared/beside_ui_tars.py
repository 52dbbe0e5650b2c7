"""Replies as we read them beside how the public `ui-tars` package reads them, and why they differ where they do."""

import contextlib
import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from benchmarks.shared.planted.replies import SEEDS, mutated
from models.families.dialects import parse_reply
from schemas.action import Action, action_of
from schemas.failure import FlywheelError

EQUAL = "equal"
ONLY_HERE = "read here only"
"""They raise, or come to what is no action; examples are in docs/families.md."""
NO_ACTION = "no action"
"""What they return is none: an unknown name, a place that is missing, outside of the screen or of three numbers."""
THOUGHT = "another thought"
"""They drop what stands before the action without a label, and a reflection."""
LABELS = "several labels, or one within a word"
"""They take the last `Action: ` wherever it stands; here one within a quoted text or a word is none."""
GLUED = "text around type("
"""They take all that stands around `type(content='...')` for its content, other quotes and calls too."""
PYTHON = "as Python reads it"
"""They read arguments as Python does, where texts side by side are one, a name may stand behind a dot and \\t is a tab;
they drop spaces in front of a text and brackets within a place."""
NAMELESS = "an argument without a name"
"""They drop it; here it is an error."""
TWICE = "an argument twice"
"""They take the last one; here it is an error."""
INSIDE = "inside thinking"
"""They act on a draft in thinking that never ends, or that nothing follows."""
FURTHER = "another number of actions"
"""They split at `)` and an empty line; here calls follow each other."""
UNEXPLAINED = "unexplained"
REASONS = (ONLY_HERE, NO_ACTION, THOUGHT, LABELS, GLUED, PYTHON, NAMELESS, TWICE, FURTHER, INSIDE)
_BOXES = {"start_box": "", "end_box": "to_"}
_NAMELESS = re.compile(r"Action: \w+\((?!\s*(?:\w+\s*=|\)))")
_TYPED = re.compile(r"type\(content='(?:\\.|[^'\\])*'\)?", re.DOTALL)
_PYTHONIC = re.compile(r"""\w==|\w<\w+>=|''|\w\.\w+\(|\\[^n'"\\]|=\s*['"]\s|='[(\[][^,']*[()\[\]]|,[^,']*[(\[]\d""")
_LABEL = re.compile(r"Action[:：]")


@dataclass(frozen=True, slots=True)
class Theirs:
    """What the package makes of a reply."""

    thought: str
    actions: tuple[Action | None, ...]
    """None for one that is no action."""
    raised: str = ""
    """The exception's class."""


class Package:
    """The installed package.

    Raises:
        FlywheelError: it is not installed.
    """

    def __init__(self) -> None:
        try:
            self._parser: Any = import_module("ui_tars.action_parser")
        except ImportError as error:
            raise FlywheelError("There is no `ui_tars`.", "pip install ui-tars==0.5.1") from error

    def raw(self, text: str, sides: Sequence[int] = (1000, 1000)) -> list[dict[str, Any]] | str:
        """What it returns for a picture of these sides, in thousandths or in its pixels, or the class of what it
        raises."""
        kind = "qwen2vl" if tuple(sides) == (1000, 1000) else "qwen25vl"
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            try:
                return self._parser.parse_action_to_structure_output(text, 1000, sides[1], sides[0], model_type=kind)
            except Exception as error:  # whatever it raises, that is what it says
                return type(error).__name__

    def read(self, text: str) -> Theirs:
        """The same in our actions; coordinates are thousandths."""
        found = self.raw(text)
        if isinstance(found, str):
            return Theirs("", (), found)
        thought = (found[0]["thought"] or "") if found else ""
        return Theirs(thought, tuple(_meant(one["action_type"], one["action_inputs"]) for one in found))


def _meant(kind: object, inputs: dict[str, Any]) -> Action | None:
    fields: dict[str, object] = {"type": kind}
    try:
        for name, value in inputs.items():
            if name in _BOXES:
                left, top, right, bottom = json.loads(value)
                fields |= {f"{_BOXES[name]}x": (left + right) / 2, f"{_BOXES[name]}y": (top + bottom) / 2}
            else:
                fields[name] = value
        return action_of(fields)
    except (ValidationError, ValueError):
        return None


def difference(text: str, theirs: Theirs) -> str:
    """`EQUAL`, one of `REASONS`, or `UNEXPLAINED`."""
    ours = parse_reply(text)
    mine = [one for one in (ours.action, *ours.further) if one]
    first = theirs.actions[0] if theirs.actions else None
    if first is None:
        return ONLY_HERE if mine else NO_ACTION if theirs.actions else EQUAL
    same = bool(mine) and _near(mine[0], first)
    if same and len(mine) == len(theirs.actions) and all(map(_near, mine, theirs.actions)):
        return EQUAL if ours.thought == theirs.thought else THOUGHT
    if not mine and " thinking: " in (ours.error or ""):
        return INSIDE
    if len(_LABEL.findall(text)) > 1 or re.search(r"\wAction: ", text):
        return LABELS
    block = text.strip().rpartition("Action: ")[2].split(")\n\n")[0]
    if first.type == "type" and not _TYPED.fullmatch(block):
        return GLUED
    if _PYTHONIC.search(block):
        return PYTHON
    if not mine and _NAMELESS.search(text):
        return NAMELESS
    if " twice" in (ours.error or ""):
        return TWICE
    return FURTHER if same else UNEXPLAINED


def _near(one: Action, other: Action | None) -> bool:
    if other is None or one.type != other.type:
        return False
    mine, theirs = one.model_dump(), other.model_dump()
    return all(abs(mine[key] - value) < 1e-9 if isinstance(value, float) else mine[key] == value
               for key, value in theirs.items())  # fmt: skip


def garbled(examples: Sequence[str], count: int, seed: int = 11) -> Iterator[str]:
    """So many garbled replies, of the package's own examples and of every grammar's."""
    chance = random.Random(seed)
    for number in range(count):
        yield mutated(chance, SEEDS if number % 2 else examples)


def compared(texts: Iterator[str], package: Package) -> tuple[Counter[str], list[str]]:
    """How often each comes, and the replies whose difference nothing explains."""
    counts, open_ones = Counter[str](), list[str]()
    for text in texts:
        found = difference(text, package.read(text))
        counts[found] += 1
        if found == UNEXPLAINED:
            open_ones.append(text)
    return counts, open_ones
