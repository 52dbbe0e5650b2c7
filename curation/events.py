"""Merge the input events of a screen recording into actions, each with the time at which it began.

An event log has one event a line: its time in seconds, its kind, and its place in pixels. Logs of AgentNet's recorder
(OpenCUA, arXiv 2508.09123) are read, too. Key presses become typed text, a button's way from down to up becomes a click
or a drag, repeated clicks a double click, and turns of the wheel one scroll.

Source of AgentNet's events: github.com/xlang-ai/AgentNetTool @88da023, `agentnet-annotator/api/core/recorder.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from common.text import Storable
from curation.converters.files import OpenModel
from schemas.action import Action, Direction, action_of, numeric
from schemas.keyboard import is_key, is_modifier, single, together

SAME_S = 0.5
"""Maximum seconds between clicks that count as a double or triple click."""
SAME_PX = 5.0
"""Maximum pixels between the places of such clicks, and of a click's way from down to up. A longer way is a drag."""
SCROLL_S = 1.0
"""Maximum seconds between turns of the wheel that count as one scroll."""
SLACK_S = 0.5
"""Seconds by which an event may lie outside of the recording: recorders start and stop a moment apart."""
Kind = Literal[
    "move", "down", "up", "click", "double_click", "triple_click", "right_click", "middle_click", "drag", "scroll",
    "press", "release", "key", "text", "actions",
]  # fmt: skip
POINTED = ("down", "up", "click", "double_click", "triple_click", "right_click", "middle_click", "drag", "scroll")
"""Kinds of event that need a place."""
Pixel = Annotated[float, BeforeValidator(numeric), Field(allow_inf_nan=False)]
_CLICKED = {
    "click": "click", "double_click": "left_double", "triple_click": "triple_click", "right_click": "right_single",
    "middle_click": "middle_single",
}  # fmt: skip
_BUTTONS = {"left": "click", "right": "right_single", "middle": "middle_single"}
_TIMES = {"click": "left_double", "left_double": "triple_click"}
"""Action that a further click at the same place makes of an action."""
_BLANK, _ENTER, _BACKSPACE = " ", "enter", "backspace"
_THEIRS = {"move": "move", "scroll": "scroll", "press": "press", "release": "release"}
"""Kinds of AgentNet's events; `click` is a button that goes down (`pressed`) or up."""
PAUSES = ("pause", "resume")
"""AgentNet's events that are no input."""


class InputEvent(OpenModel):
    """One event of a log."""

    time: Annotated[float, BeforeValidator(numeric), Field(allow_inf_nan=False)]
    """Seconds, from the first frame or from the recorder's own start."""
    kind: Kind
    x: Pixel | None = None
    y: Pixel | None = None
    to_x: Pixel | None = None
    """`drag`: the place where the button goes up."""
    to_y: Pixel | None = None
    button: Literal["left", "right", "middle"] = "left"
    dx: Pixel = 0.0
    """`scroll`: turns of the wheel to the right."""
    dy: Pixel = 0.0
    """`scroll`: turns of the wheel upwards."""
    key: Storable = ""
    """`press`, `release`: one key. `key`: keys that are pressed together, such as `ctrl c`."""
    text: Storable = ""
    actions: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    """`actions`: this project's actions of one step, with places in fractions of the screen. Exports write them."""
    thought: Storable = ""
    """`actions`: the thought of the step."""

    @model_validator(mode="before")
    @classmethod
    def _of_agentnet(cls, given: Any) -> Any:
        """Convert an event of AgentNet's recorder."""
        if not isinstance(given, Mapping) or "time_stamp" not in given or "kind" in given:
            return given  # type: ignore[return-value]
        fields: dict[str, Any] = dict(given)  # type: ignore[arg-type]
        action, pressed = fields.pop("action", None), fields.pop("pressed", None)
        kind = ("down" if pressed else "up") if action == "click" else _THEIRS.get(str(action), action)
        made = {"time": fields.pop("time_stamp"), "kind": kind, "key": str(fields.pop("name", ""))}
        return {**fields, **made}

    @model_validator(mode="after")
    def _has_its_fields(self) -> "InputEvent":
        if self.kind in ("press", "release"):
            self.key = _key_of(self.key)
        needed = ["x", "y"] if self.kind in POINTED else []
        needed += ["to_x", "to_y"] if self.kind == "drag" else []
        if lacks := [name for name in needed if getattr(self, name) is None]:
            raise ValueError(f"`{lacks[0]}` is missing: a {self.kind} has a place in pixels")
        if self.kind in ("press", "release", "key") and not self.key:
            raise ValueError(f"`key` is missing: a {self.kind} names its key")
        if self.kind == "text" and not self.text:
            raise ValueError("`text` is missing: write the typed text")
        return self


@dataclass(frozen=True, slots=True)
class TimedActions:
    """The actions of one step, which belong together."""

    begin_s: float
    """Seconds from the first frame at which the first of them began."""
    actions: tuple[Action, ...]
    scrolled: tuple[float, float] | None = None
    """Turns of the wheel to the right and upwards, of a scroll."""
    thought: str = ""
    text: str = ""
    """Text of a step without an action."""


ToFraction = Callable[[float, float], tuple[float, float]]


def actions_of(events: Iterable[InputEvent], fraction: ToFraction) -> list[TimedActions]:
    """Merge events into actions, in order of time.

    A move without a button is no action. A release without a press, and a press that is held at the end of the log, are
    none either: the recorder's own start and stop cause them.

    Args:
        events: the events, with times from the first frame.
        fraction: converts a place in pixels to fractions of the screen.

    Raises:
        ValueError: an action is invalid, such as a hotkey of four keys.
    """
    merger = _Merger(fraction)
    for event in sorted(events, key=lambda one: one.time):
        merger.add(event)
    merger.end_text()
    return sorted(merger.done, key=lambda one: one.begin_s)


@dataclass(slots=True)
class _Merger:
    fraction: ToFraction
    done: list[TimedActions] = field(default_factory=list[TimedActions])
    _down: dict[str, InputEvent] = field(default_factory=dict[str, InputEvent])
    """Pressed buttons."""
    _held: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """Held modifiers in order, with the time of their press; None once another event has used them."""
    _text: str = ""
    _text_began: float = 0.0
    _last: InputEvent | None = None
    """The last click or turn of the wheel, if no other action came after it."""

    def add(self, event: InputEvent) -> None:
        if event.kind == "move":
            return
        if event.kind == "down":
            self._down[event.button] = event
        elif event.kind == "up":
            if (down := self._down.pop(event.button, None)) is not None:
                self._released(down, event)
        elif event.kind == "release":
            self._key_up(event)
        elif event.kind == "press":
            self._key_down(event)
        elif event.kind == "text":
            self._type(event.text, event.time)
        elif event.kind == "key":
            names = event.key.split()
            if len(names) == 1 and self._is_character(names[0]):
                self._type(names[0], event.time)
            else:
                self._special(event.key, event.time)
        elif event.kind == "scroll":
            self._scroll(event)
        elif event.kind == "actions":
            self.end_text()
            done = tuple(map(action_of, event.actions))
            self.done.append(TimedActions(event.time, done, None, event.thought, event.text))
            self._last = None
        elif event.kind == "drag":
            self._drag(event, (event.to_x or 0.0, event.to_y or 0.0))
        else:
            self._click(event, _CLICKED[event.kind])

    def _act(self, began: float, scrolled: tuple[float, float] | None = None, **fields: Any) -> None:
        """Add an action, between presses and releases of the held modifiers."""
        self.end_text()
        held, began = list(self._held), self._began(began)
        given: list[dict[str, object]] = [
            *(dict[str, object](type="press", key=key) for key in held),
            fields,
            *(dict[str, object](type="release", key=key) for key in reversed(held)),
        ]
        self.done.append(TimedActions(began, tuple(map(action_of, given)), scrolled))
        self._last = None

    def _began(self, at: float) -> float:
        """Return the time at which an event and its held modifiers began, and mark these as used."""
        began = min([at, *(since for since in self._held.values() if since is not None)])
        self._held = dict.fromkeys(self._held)
        return began

    def _chorded(self, at: float, names: Sequence[str]) -> None:
        """Add keys that are pressed together, as one action."""
        began, held = self._began(at), self._held
        self._held = {}
        self._act(began, type="hotkey", key=together(names))
        self._held = held

    def _released(self, down: InputEvent, up: InputEvent) -> None:
        end = (up.x or 0.0, up.y or 0.0)
        if down.button == "left" and not _near(down, end):
            self._drag(down, end)
        else:
            self._click(down, _BUTTONS[down.button])

    def _drag(self, event: InputEvent, end: tuple[float, float]) -> None:
        x, y = self._at(event)
        to_x, to_y = self.fraction(*end)
        self._act(event.time, type="drag", x=x, y=y, to_x=to_x, to_y=to_y)

    def _click(self, event: InputEvent, kind: str) -> None:
        last = self._last
        if last is not None and last.kind != "scroll" and kind == "click" and self._again(last, event):
            done = self.done.pop()
            kind = _TIMES[next(one.type for one in done.actions if one.type in _TIMES)]
            x, y = self._at(event)
            changed = [action_of({"type": kind, "x": x, "y": y}) if one.type in _TIMES else one for one in done.actions]
            self.done.append(replace(done, actions=tuple(changed)))
        else:
            x, y = self._at(event)
            self._act(event.time, type=kind, x=x, y=y)
        self._last = event if kind in _TIMES else None

    def _again(self, last: InputEvent, event: InputEvent) -> bool:
        return event.time - last.time <= SAME_S and _near(last, (event.x or 0.0, event.y or 0.0))

    def _scroll(self, event: InputEvent) -> None:
        if not (event.dx or event.dy):
            return
        last = self._last
        if last is not None and last.kind == "scroll" and event.time - last.time <= SCROLL_S:
            before = self.done[-1].scrolled or (0.0, 0.0)
            if direction_of(event.dx, event.dy) == direction_of(*before):
                both = before[0] + event.dx, before[1] + event.dy
                self.done[-1] = replace(self.done[-1], scrolled=both)
                self._last = event
                return
        x, y = self._at(event)
        way = direction_of(event.dx, event.dy)
        self._act(event.time, (event.dx, event.dy), type="scroll", x=x, y=y, direction=way)
        self._last = event

    def _at(self, event: InputEvent) -> tuple[float, float]:
        return self.fraction(event.x or 0.0, event.y or 0.0)

    def _key_down(self, event: InputEvent) -> None:
        name = event.key
        if is_modifier(name):
            self._held.setdefault(single(name), event.time)  # a held key repeats its press
        elif self._is_character(name) and not self._chord():
            self._type(name, event.time)
        elif name.casefold() in ("space", "spacebar") and not self._chord():
            self._type(_BLANK, event.time)
        else:
            self._special(name, event.time)

    def _key_up(self, event: InputEvent) -> None:
        if not is_modifier(event.key) or (name := single(event.key)) not in self._held:
            return
        if self._held[name] is not None:  # pressed alone
            self._chorded(event.time, list(self._held))
        del self._held[name]

    def _chord(self) -> list[str]:
        """Returns the held modifiers if they make a key a shortcut; shift alone writes another character."""
        return [] if all(name.startswith("shift") for name in self._held) else list(self._held)

    def _special(self, key: str, at: float) -> None:
        """Add a key without a character of its own, or a shortcut; within a text, Enter ends and Backspace edits it."""
        if self._text and not self._chord() and is_key(key):
            name = single(key)
            if name == _ENTER:
                self._text += "\n"
                self.end_text()
                return
            if name == _BACKSPACE:
                self._text = self._text[:-1]
                return
        self._chorded(at, [*self._held, *key.split()])

    def _is_character(self, name: str) -> bool:
        return len(name) == 1 and name.isprintable()

    def _type(self, text: str, at: float) -> None:
        if not self._text:
            self._text_began = at
        self._held = dict.fromkeys(self._held)
        self._text += text
        self._last = None

    def end_text(self) -> None:
        """Add the text that was typed so far; keys that were all deleted again are no action."""
        if self._text:
            self.done.append(TimedActions(self._text_began, (action_of({"type": "type", "content": self._text}),)))
        self._text = ""


def _key_of(name: str) -> str:
    """Return this project's form of a recorder's name of a key: `ctrl_l` is `ctrl`, and Control-C's code is `c`."""
    if len(name) == 1:
        return chr(ord(name) + 96) if 0 < ord(name) < 27 and name not in "\t\n\r\b" else name
    plain = name.removesuffix("_l")
    return f"{plain.removesuffix('_r')}right" if plain.endswith("_r") else plain.replace("_", "")


def _near(event: InputEvent, place: Sequence[float]) -> bool:
    x, y = event.x or 0.0, event.y or 0.0
    return max(abs(x - place[0]), abs(y - place[1])) <= SAME_PX


def direction_of(dx: float, dy: float) -> Direction:
    """Return the direction in which the screen scrolls, by turns of the wheel to the right and upwards."""
    if abs(dx) > abs(dy):
        return "right" if dx > 0 else "left"
    return "up" if dy > 0 else "down"
