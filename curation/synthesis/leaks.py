"""What may not be made: a task that descends from one that is held out, or that asks for the same in nearly its words.

Held-out tasks measure what nothing was trained on. A made task is refused if any of its ancestors is held out, or if
some part of its words, values left aside, is nearly a held-out task's. Words that a task of the suite has as well tell
nothing apart, so those are not compared. Whatever a maker says its parents are, and whatever the words: a task whose
reward asks for the fields of one of the environment's own tasks descends from that (`schemas.world.World.asked`).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from schemas.tables.task import GuiTask

ALIKE = 0.8
"""Words are near duplicates from this share of equal words on (`difflib`'s ratio)."""
VALUE = "_"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What is held out."""

    task_ids: Collection[str]
    wordings: Collection[tuple[str, ...]]
    """Of those tasks, as `plain` gives them."""
    parents: Mapping[str, Collection[str]]
    """Of made tasks that there are, by task."""


def held_out(tasks: Iterable[GuiTask], made: Mapping[str, Collection[str]]) -> HeldOut:
    """What is held out in a catalog.

    Args:
        tasks: the catalog.
        made: the parents of each made task.
    """
    known = list(tasks)
    shared = {plain(one.instruction) for one in known if one.split == "train"}
    apart = [one for one in known if one.split == "held_out"]
    wordings = {plain(one.instruction) for one in apart} - shared
    return HeldOut({one.task_id for one in apart}, wordings, made)


def leak(instruction: str, parents: Iterable[str], held: HeldOut) -> tuple[str, str]:
    """Why a task may not be: `held out` or `wording`, and what it leaks; two empty texts if it may."""
    if found := sorted(ancestors(parents, held.parents) & set(held.task_ids)):
        return "held out", f"it descends from {found[0]}, which is held out"
    words = plain(instruction)
    for wording in sorted(held.wordings):
        if nearest(wording, words) >= ALIKE:
            return "wording", f"it asks in nearly the words of a held-out task: {' '.join(wording)}"
    return "", ""


def ancestors(parents: Iterable[str], made: Mapping[str, Collection[str]]) -> set[str]:
    """These tasks, what they were made from, and so on."""
    found, left = set[str](), list(parents)
    while left:
        if (one := left.pop()) not in found:
            found.add(one)
            left += made.get(one, ())
    return found


def plain(instruction: str) -> tuple[str, ...]:
    """An instruction's words in lower case; what is quoted, a number, or filled in by a seed is one sign."""
    text = re.sub(r'"[^"]*"|\{[^}]*\}|\d[\d.,:/]*', f" {VALUE} ", instruction.lower())
    return tuple(re.findall(r"[^\W\d]+", text))


def nearest(wording: tuple[str, ...], words: tuple[str, ...]) -> float:
    """How near the nearest stretch of some words comes to a wording, in [0, 1]."""
    size = len(wording)
    if not size:
        return 0.0
    windows = {
        words[at : at + wide]
        for wide in range(max(1, size - 1), size + 2)
        for at in range(max(1, len(words) - wide + 1))
    }
    return max((SequenceMatcher(None, wording, one, autojunk=False).ratio() for one in windows), default=0.0)
