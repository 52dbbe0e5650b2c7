"""Turn the moves of a task's script, which name elements, into actions by the page's element list.

A script proves that a task can be done by clicks and keys; no policy sees it.
"""

import math
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, model_validator

from schemas import action as act
from schemas.observation import Element

ACTIONS = ("click", "double", "right", "type", "key", "scroll", "wait")


class ScriptMove(BaseModel):
    """One move: `click`, `double` and `right` name an element, `type` is text, `key` a key, `scroll` a direction."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    click: str | None = None
    double: str | None = None
    right: str | None = None
    type: str | None = None
    key: str | None = None
    scroll: str | None = None
    wait: bool | None = None
    kind: str = ""
    """Kind of the element."""
    near: str = ""
    """Name of an element: of several matches, the one closest to it is meant."""
    nth: int = 0
    """Index among several matches, from the top left; -1 is the last."""
    at: tuple[float, float] = (0.5, 0.5)
    """Point in the element, in fractions of its box."""

    @model_validator(mode="after")
    def _one_action(self) -> "ScriptMove":
        if len([name for name in ACTIONS if getattr(self, name) is not None]) != 1:
            raise ValueError(f"a move is one of {', '.join(ACTIONS)}")
        return self

    @property
    def target(self) -> str | None:
        """The name of the element that it is done to."""
        return next((name for name in (self.click, self.double, self.right) if name is not None), None)


class NotThere(LookupError):
    """The screen does not show the element of a move."""


def action_for(move: ScriptMove, elements: Sequence[Element]) -> act.Action:
    """The action that a move is on a screen; raises NotThere."""
    if move.type is not None:
        return act.Type(content=move.type)
    if move.key is not None:
        return act.Hotkey(key=move.key)
    if move.wait is not None:
        return act.Wait()
    if move.scroll is not None:
        return act.action_of({"type": "scroll", "x": move.at[0], "y": move.at[1], "direction": move.scroll})
    left, top, right, bottom = found(move, elements).box
    point = {"x": left + (right - left) * move.at[0], "y": top + (bottom - top) * move.at[1]}
    kind = "click" if move.click is not None else "left_double" if move.double is not None else "right_single"
    return act.action_of({"type": kind, **point})


def found(move: ScriptMove, elements: Sequence[Element]) -> Element:
    """The element of a move: with exactly this name, else one that begins with it, else one that contains it."""
    wanted = _plain(move.target or "")
    kinds = [one for one in elements if not move.kind or one.kind == move.kind]
    rules = (
        lambda name: name == wanted,
        lambda name: bool(wanted) and name.startswith(wanted),
        lambda name: bool(wanted) and wanted in name,
    )
    having = next((some for rule in rules if (some := [one for one in kinds if rule(_plain(one.name))])), [])
    having = [one for one in having if one.interactive] or having
    if not having:
        raise NotThere(f"there is no {move.kind or 'element'} {move.target!r} on the screen")
    if move.near:
        x, y = found(ScriptMove(click=move.near), elements).centre
        return min(having, key=lambda one: math.hypot(one.centre[0] - x, (one.centre[1] - y) * 4))
    ordered = sorted(having, key=lambda one: (round(one.box[1], 2), one.box[0]))
    if not -len(ordered) <= move.nth < len(ordered):
        raise NotThere(f"there are {len(ordered)} {move.target!r} on the screen, and number {move.nth} is wanted")
    return ordered[move.nth]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
