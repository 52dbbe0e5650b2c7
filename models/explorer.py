"""Explores without a model: clicks, types and drags at random among the elements of the page.

The explorer starts the first iteration from nothing, so it is broad rather than clever: all elements that react are
equally likely, whatever the instruction. The instruction is only a source of text. The explorer gets the page's
elements and clicks elements, not pixels; the lake stores only the screenshot and the coordinates. It presses keys other
than Enter only if the instruction names them, as in a game: `Keys: left, right, space.` If an environment lists no
elements, the explorer acts at random points, with the types of action that the environment accepts, if known.
"""

import random
import re
from collections.abc import Sequence

from models.completion import Completion
from models.families.dialects import format_action, format_reply, parse_reply
from models.policy import Context, Explorer
from schemas import action as act
from schemas.observation import Element

FIELDS = ("text field", "password field", "textarea")
HANDLES = ("shape", "slider", "other")
LARGE = 0.15
"""Share of the screen above which an element is clicked at any point; a smaller element is clicked in the middle."""
P_TYPE = 0.9
"""Probability of typing after clicking into an empty field."""
P_ENTER = 0.05
P_DRAG, P_DRAG_HANDLES = 0.07, 0.3
P_SCROLL = 0.1
P_WAIT = 0.02
P_DEAD = 0.04
"""Probability of clicking an element that does not look interactive."""
AGAIN = 0.25
"""Weight of another click on the same element; other elements weigh up to 1."""
P_TYPE_BLIND = 0.3
"""Probability of typing after a click if the clicked element is unknown."""
BLIND = {"drag": P_DRAG, "scroll": P_SCROLL, "wait": P_WAIT, "click": 1 - P_DRAG - P_SCROLL - P_WAIT}
"""Probability of each action on a screen without elements."""
P_KEY = 0.8
"""Probability of pressing a key if the instruction names keys."""
KEYS = re.compile(r"\bKeys: ([a-z0-9]+(?:, [a-z0-9]+)*)\.")
"""The keys that an instruction names."""
DONE = 0.1
"""Weight of a click on a filled field or a checked box that the explorer has clicked before."""


class PageExplorer(Explorer):
    """Explores uniformly over the page's elements; the same seed, step and page always give the same action."""

    version = "explorer-5"
    dialect = "box_v1"
    needs_elements = True

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        """Returns one completion per context; the temperature has no effect."""
        return [self._completion(context) for context in contexts]

    def _completion(self, context: Context) -> Completion:
        chance = random.Random(f"{context.seed} {len(context.turns)}")
        past = [parse_reply(turn.action_text).first for turn in context.turns]
        text = format_action(_choose(chance, context, past), self.dialect)
        return parse_reply(format_reply("", text))


class ScriptedExplorer(PageExplorer):
    """Plays the environment's own script of a task, and explores like `PageExplorer` where there is none.

    Its trajectories are demonstrations: a script knows the answer. The lake names it as their policy.
    """

    version = "scripted-1"
    needs_hints = True

    def _completion(self, context: Context) -> Completion:
        if context.hint is None:
            return super()._completion(context)
        return parse_reply(format_reply("", format_action(context.hint, self.dialect)))


def _choose(chance: random.Random, context: Context, past: Sequence[act.Action | None]) -> act.Action:
    elements, last = context.observation.elements, past[-1] if past else None
    if not elements:
        return _blind(chance, context, last)
    live = [element for element in elements if element.interactive]
    if isinstance(last, act.Click) and any(_awaits_text(element, last) for element in live):
        if chance.random() < P_TYPE:
            return act.Type(content=_words(chance, context.instruction, elements))
    elif isinstance(last, act.Type) and chance.random() < P_ENTER:
        return act.Hotkey(key="enter")
    if (keys := _keys(context.instruction)) and chance.random() < P_KEY:
        return act.Hotkey(key=chance.choice(keys))
    if chance.random() < P_WAIT:
        return act.Wait()
    handles = [element for element in live if element.kind in HANDLES]
    if chance.random() < (P_DRAG_HANDLES if handles else P_DRAG):
        return _drag(chance, handles or list(elements), elements)
    if chance.random() < P_SCROLL:
        x, y = _point(chance, chance.choice(elements))
        return act.Scroll(x=x, y=y, direction=chance.choice(("up", "down")))
    if not live or chance.random() < P_DEAD:
        return _click(chance, chance.choice(elements))
    return _click(chance, chance.choices(live, [_worth(element, past) for element in live])[0])


def _blind(chance: random.Random, context: Context, last: act.Action | None) -> act.Action:
    """Chooses any action that the environment accepts, at a random point of the screen."""
    takes = context.observation.takes or {"hotkey", "type", *BLIND}
    able = {kind: share for kind, share in BLIND.items() if kind in takes}
    keys = _keys(context.instruction) if "hotkey" in takes else []
    if keys and chance.random() < P_KEY:
        return act.Hotkey(key=chance.choice(keys))
    follows = isinstance(last, act.Click) or "click" not in takes
    if "type" in takes and (not able or (follows and chance.random() < P_TYPE_BLIND)):
        return act.Type(content=_words(chance, context.instruction, ()))
    if not able and "hotkey" in takes:
        return act.Hotkey(key=chance.choice(keys or ["enter"]))
    x, y, to_x, to_y = (round(chance.random(), 4) for _ in range(4))
    shares = able or BLIND  # if the environment accepts none of them, all are equally good
    match chance.choices(list(shares), list(shares.values()))[0]:
        case "drag":
            return act.Drag(x=x, y=y, to_x=to_x, to_y=to_y)
        case "scroll":
            return act.Scroll(x=x, y=y, direction=chance.choice(("up", "down")))
        case "wait":
            return act.Wait()
        case _:
            return act.Click(x=x, y=y)


def _keys(instruction: str) -> list[str]:
    named = KEYS.search(instruction)
    return named[1].split(", ") if named else []


def _awaits_text(element: Element, last: act.Click) -> bool:
    return element.kind in FIELDS and not element.value and _holds(element, last)


def _holds(element: Element, point: act.Click) -> bool:
    left, top, right, bottom = element.box
    return left <= point.x <= right and top <= point.y <= bottom


def _worth(element: Element, past: Sequence[act.Action | None]) -> float:
    clicked = [isinstance(one, act.Click) and _holds(element, one) for one in past]
    done = any(clicked) and element.value and element.kind in (*FIELDS, "checkbox", "radio")
    return (DONE if done else 1.0) * (AGAIN if clicked and clicked[-1] else 1.0)


def _click(chance: random.Random, element: Element) -> act.Click:
    x, y = _point(chance, element)
    return act.Click(x=x, y=y)


def _point(chance: random.Random, element: Element) -> tuple[float, float]:
    left, top, right, bottom = element.box
    if (right - left) * (bottom - top) <= LARGE:
        return element.centre
    return chance.uniform(left, right), chance.uniform(top, bottom)


def _drag(chance: random.Random, handles: Sequence[Element], elements: Sequence[Element]) -> act.Drag:
    """Drags a handle onto another element or to a point near it, or drags over a text from its first letter to its
    last."""
    handle = chance.choice(handles)
    left, top, right, bottom = handle.box
    if handle.kind == "text":
        return act.Drag(x=left, y=top, to_x=right, to_y=bottom)
    x, y = _point(chance, handle)
    if len(elements) > 1 and chance.random() < 0.5:
        to_x, to_y = _point(chance, chance.choice([other for other in elements if other is not handle]))
    else:
        to_x, to_y = x + chance.uniform(-0.5, 0.5), y + chance.uniform(-0.3, 0.3)
    return act.Drag(x=x, y=y, to_x=min(max(to_x, 0.0), 1.0), to_y=min(max(to_y, 0.0), 1.0))


def _words(chance: random.Random, instruction: str, elements: Sequence[Element]) -> str:
    """Chooses a text to type: a quoted part of the instruction, else a number in it, else any visible word."""
    quoted = re.findall(r'"([^"]+)"', instruction)
    numbers = re.findall(r"[-+]?\d[\d/:.]*(?: [AP]M)?", instruction)
    shown = " ".join(element.name or element.value for element in elements if element.kind in ("text", "textarea"))
    anything = re.findall(r"[\w@']+", f"{instruction} {shown}")
    return chance.choice(quoted or numbers or anything or ["a"])
