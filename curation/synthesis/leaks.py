"""Refuse made tasks that descend from a held-out task, or that ask for the same in nearly its words.

Held-out tasks measure behaviour that was not trained. A made task is refused if an ancestor is held out, or if some
part of its words, without values, is similar to a held-out task's words. A held-out wording that a task of the suite
also has is not compared. Independently of its stated parents and words, a task also descends from each of the
environment's own tasks whose fields its reward reads (`schemas.world.World.asked`).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from schemas.tables.task import GuiTask

ALIKE = 0.8
"""Minimum ratio of equal words of near duplicates (`difflib`'s ratio)."""
VALUE = "_"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The held-out tasks."""

    task_ids: Collection[str]
    wordings: Collection[tuple[str, ...]]
    """Words of these tasks, as `plain` returns them."""
    parents: Mapping[str, Collection[str]]
    """Parents of the existing made tasks, by task."""


def held_out(tasks: Iterable[GuiTask], made: Mapping[str, Collection[str]]) -> HeldOut:
    """Return the held-out tasks of a catalog.

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
    """Return why a task is refused, `held out` or `wording`, and the leak; two empty texts if it is allowed."""
    if found := sorted(ancestors(parents, held.parents) & set(held.task_ids)):
        return "held out", f"it descends from {found[0]}, which is held out"
    words = plain(instruction)
    for wording in sorted(held.wordings):
        if nearest(wording, words) >= ALIKE:
            return "wording", f"it asks in nearly the words of a held-out task: {' '.join(wording)}"
    return "", ""


def ancestors(parents: Iterable[str], made: Mapping[str, Collection[str]]) -> set[str]:
    """Return these tasks, their parents, and so on."""
    found, left = set[str](), list(parents)
    while left:
        if (one := left.pop()) not in found:
            found.add(one)
            left += made.get(one, ())
    return found


def plain(instruction: str) -> tuple[str, ...]:
    """Return an instruction's words in lower case, with one sign for a quote, a number or a seed's value."""
    text = re.sub(r'"[^"]*"|\{[^}]*\}|\d[\d.,:/]*', f" {VALUE} ", instruction.lower())
    return tuple(re.findall(r"[^\W\d]+", text))


def nearest(wording: tuple[str, ...], words: tuple[str, ...]) -> float:
    """Return the similarity of a wording and the nearest stretch of some words, in [0, 1]."""
    size = len(wording)
    if not size:
        return 0.0
    windows = {
        words[at : at + wide]
        for wide in range(max(1, size - 1), size + 2)
        for at in range(max(1, len(words) - wide + 1))
    }
    return max((SequenceMatcher(None, wording, one, autojunk=False).ratio() for one in windows), default=0.0)
