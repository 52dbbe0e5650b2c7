"""Converts programs of Python calls to actions: pyautogui's (OpenCUA, AgentNet) and ScaleCUA's, without a module.

A program is played on a simulated pointer and mouse button, so that a move and the call after it become one action, and
a button that goes down and up becomes a click, a long press or a drag. What does not become one of these is performed
by parts: a move, a button that goes down, and its release. A call without an equivalent among our actions, such as a
double click of the right button, ends the program with a problem that names it. This project's actions have no amount
of a scroll and no duration of a move. Such arguments are reported.

Source: pyautogui 0.9.54 (`pyautogui/__init__.py`).
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import ValidationError

from common.text import counted
from models.families.code.calls import ENDS, MAX_CALLS, Call, NoAction, arguments, is_unset, listed, parse
from schemas.action import (
    MAX_HOLD_S,
    MAX_WAIT_S,
    OPPOSITE,
    Action,
    Button,
    MouseDown,
    MouseUp,
    Move,
    Press,
    Release,
    action_of,
)
from schemas.keyboard import single, together, together_in, usual
from schemas.problem import named_problem

Point = tuple[float, float]
ToFraction = Callable[[float, float], Point]
"""Converts the code's unit to fractions of the screen; may raise ValueError for a point outside of it."""
SEPARATE_S = 0.5
"""Minimum seconds between clicks that count as single ones."""
BUTTONS: Mapping[object, Button] = {
    "left": "left", "primary": "left", 1: "left", "middle": "middle", 2: "middle", "right": "right",
    "secondary": "right", 3: "right",
}  # fmt: skip
Clicked = Literal["click", "left_double", "triple_click", "right_single", "middle_single"]
CLICKS: Mapping[tuple[str, int], Clicked] = {
    ("left", 1): "click", ("left", 2): "left_double", ("left", 3): "triple_click", ("right", 1): "right_single",
    ("middle", 1): "middle_single",
}  # fmt: skip
"""Types of action by button and number of clicks."""
_USUAL = {
    "doubleClick": ("left", 2), "rightClick": ("right", 1), "middleClick": ("middle", 1), "tripleClick": ("left", 3),
    "triple_click": ("left", 3),
}  # fmt: skip
"""Default button and number of clicks of a call; for all other calls, one click of the left button."""
_PLAIN = {
    "navigate_home": "press_home", "home": "press_home", "navigate_back": "press_back", "back": "press_back",
    "go_backward": "navigate_back",
}  # fmt: skip
SUCCESS = (
    *("success", "successful", "succeeded", "complete", "completed", "done", "finish", "finished"),
    *("ok", "true", "yes", "1", "task_complete", "task_completed"),
)
FAILURE = (
    *("failure", "fail", "failed", "infeasible", "impossible", "error", "incomplete", "unfinished"),
    *("cancelled", "canceled", "aborted", "false", "no", "0", "task_impossible", "task_infeasible", "task_failed"),
)
"""Statuses with which models end a task, in any case."""
_WAITS = ("wait", "sleep", "countdown", "WAIT")
_POINTED = ("click", "leftClick", "long_press", *_USUAL)
_LENGTHS = ("duration", "seconds")
"""Arguments for the length of a wait and of a long press."""
_PACE = (*_LENGTHS, "tween", "logScreenshot", "_pause")
"""Arguments of any other call for which no action of this project has a field."""
_STILL = (
    "press", "hotkey", "shortcut", "hold", "keyDown", "keyUp", "write", "typewrite", "response", "mouseUp", *_WAITS,
    *ENDS,
)  # fmt: skip
"""Calls that leave the pointer where it is."""


class OutOfScreen(ValueError):
    """A coordinate that lies outside of the screen."""


@dataclass(frozen=True, slots=True)
class Played:
    """Result of a program."""

    actions: tuple[Action, ...] = ()
    """Actions up to the first call that is no action."""
    parts: int = 1
    """Number of actions of the first statement, such as three for `press` of three keys. If it leaves a key or a button
    held, the actions up to its release count, too, and so does the action after a move."""
    pointer: Point | None = None
    """Final position of the pointer; None if unknown."""
    problem: str = ""
    """Reason why there is no further action, if the program has more calls."""
    outside: bool = False
    """Whether the problem is a point outside of the screen."""
    unused: tuple[str, ...] = ()
    """Arguments of the calls up to the first action for which this project's actions have no field, each as
    `name=value`."""


def play(
    code: str,
    fraction: ToFraction,
    pointer: Point | None = None,
    own: str = "",
) -> Played:
    """Plays a program into actions; never raises for any text of a model.

    Args:
        code: Python, or a text that has calls on lines of their own.
        fraction: gives a point of the code's unit in fractions.
        pointer: where the pointer was before, for calls without a point.
        own: a module whose functions are our actions by their names.
    """
    calls, problem = parse(code, own)
    return play_calls(calls, fraction, pointer, own, problem or ("" if calls else f"no call in {code[:80]!r}"))


def play_calls(
    calls: Sequence[Call],
    fraction: ToFraction,
    pointer: Point | None = None,
    own: str = "",
    problem: str = "",
) -> Played:
    """Plays calls into actions as `play` plays a program; `problem` is the reason why the program has no more calls."""
    player = _Player(fraction, pointer, own)
    for call in calls:
        player.perform(call)
    player.end(problem)
    return Played(
        tuple(player.actions),
        _released(player.actions, player.parts),
        player.pointer,
        player.problem,
        player.outside,
        tuple(player.unused),
    )


def _released(actions: Sequence[Action], parts: int) -> int:
    """Counts the actions from the beginning, at least `parts`, until no key or button is held, and none of them is a
    last move; returns `parts` if one stays held."""
    held: set[str] = set()
    for count, action in enumerate(actions, 1):
        if isinstance(action, Press):
            held.add(usual(action.key))
        elif isinstance(action, Release):
            held.discard(usual(action.key))
        elif isinstance(action, MouseDown):
            held.add(f"the {action.button} button")
        elif isinstance(action, MouseUp):
            held.discard(f"the {action.button} button")
        if count >= parts and not held and not (isinstance(action, Move) and count < len(actions)):
            return count
    return parts


class _Player:
    """A simulated pointer and mouse button that play the calls of a program."""

    def __init__(self, fraction: ToFraction, pointer: Point | None, own: str) -> None:
        self._fraction, self._own = fraction, own
        self.actions: list[Action] = []
        self.parts, self._first = 1, 0
        self.unused: list[str] = []
        self.pointer, self.problem, self.outside = pointer, "", False
        self._moved = False
        """Whether the pointer moved, and no action was performed at its position since."""
        self._paused: float | None = None
        """Seconds of a pause since the move; 0 for a pause of unknown length."""
        self._down: dict[str, Any] | None = None
        """Fields of the action of a button that went down, and is not performed yet."""
        self._start: Point | None = None
        """Place of the pointer when this button went down; None if unknown."""
        self._since: list[dict[str, Any]] = []
        """Fields of the moves and waits since the button went down."""

    def perform(self, call: Call) -> None:
        """Adds all actions of a call, or none; after a problem, calls only move the pointer."""
        before = len(self.actions)
        try:
            self._play(call)
            self._first = self._first if before else call.statement
            self.parts = len(self.actions) if self.actions and call.statement == self._first else self.parts
            return
        except OutOfScreen as error:
            self._fail(call, error, outside=True)
        except ValidationError as error:
            self._fail(call, named_problem(error))
        except ValueError as error:
            self._fail(call, error)
        del self.actions[before:]

    def end(self, problem: str) -> None:
        """Ends the program: `problem` is the reason why no further statement is read."""
        if problem and not self.problem:
            self.problem, self.pointer = problem, None
        elif not self.problem:
            before = len(self.actions)
            try:
                self._settle()
            except ValidationError as error:
                self.problem = named_problem(error)
            except NoAction as error:
                self.problem = str(error)
            if self.problem:
                del self.actions[before:]
            self.parts = self.parts if before else max(1, len(self.actions))

    def _fail(self, call: Call, problem: object, outside: bool = False) -> None:
        if not self.problem:
            self.problem, self.outside = f"{problem} in {_written(call)[:80]!r}", outside

    def _act(self, **fields: Any) -> None:
        if not self.problem and len(self.actions) >= MAX_CALLS:
            raise NoAction(f"more than {MAX_CALLS} actions")
        action = action_of(fields)
        if not self.problem:
            self.actions.append(action)

    def _play(self, call: Call) -> None:
        if self._own and call.module == self._own:
            self._own_action(call)
            return
        name = call.function
        try:
            given = arguments(call)
        except NoAction:
            self.pointer = self.pointer if name in _STILL else None
            raise
        held = name in _WAITS or name == "long_press"
        self._report(given, *(one for one in _PACE if not (held and one in _LENGTHS)))
        if name in _WAITS:
            self._wait(given)
        elif name in ("moveTo", "move", "moveRel"):
            self._move(name, given)
        elif name in _POINTED:
            self._click(name, given)
        elif name in ("scroll", "vscroll", "hscroll"):
            self._scroll(name, given)
        elif name in ("mouseDown", "mouseUp", "dragTo", "drag", "dragRel"):
            self._button(name, given)
        elif name == "swipe":
            self._swipe(given)
        else:
            self._settle()
            self._plain(name, given)

    def _report(self, given: Mapping[str, Any], *names: str) -> None:
        """Records arguments for which the next action has no field; only the first action's arguments are recorded."""
        if not self.actions:
            self.unused += [f"{name}={str(given[name])[:80]}" for name in names if given.get(name) is not None]

    def _own_action(self, call: Call) -> None:
        self._act(**{**call.named, "type": call.function})
        if not self.problem:
            at = self.actions[-1].model_dump()
            where = (at.get("to_x", at.get("x")), at.get("to_y", at.get("y")))
            self.pointer = self.pointer if None in where else cast(Point, where)

    def _settle(self) -> None:
        """Performs what is pending: a button that went down with what followed it, or a move with its pause."""
        down, since, paused = self._down, self._since, self._paused
        moved = self._moved and down is None
        self._down, self._since, self._moved, self._paused = None, [], False, None
        for fields in [down, *since] if down is not None else []:
            self._act(**fields)
        if moved and self.pointer is not None:
            self._act(type="move", x=self.pointer[0], y=self.pointer[1])
            if paused is not None:
                self._act(type="wait", **({"seconds": paused} if paused else {}))

    def _seconds(self, given: Mapping[str, Any], longest: float) -> float | None:
        """Reads the length of a wait or of a long press; None without one. One that is too long is reported."""
        for name in _LENGTHS:
            if (seconds := given.get(name)) is not None:
                if not 0 <= seconds <= longest:
                    self._report(given, name)
                return min(max(float(seconds), 0.0), longest)
        return None

    def _point(self, given: Mapping[str, Any], x: str = "x", y: str = "y") -> Point | None:
        """Reads the point of a call; None if it names none. If only one coordinate is given, the other one is the
        pointer's."""
        across, down = given.get(x), given.get(y)
        if isinstance(across, list | tuple):
            if down is not None:
                raise NoAction(f"{across!r} and {down!r} are no point")
            numbers = cast(Sequence[float], across)
            left, top = numbers[0], numbers[1]
            across, down = (left + numbers[2] / 2, top + numbers[3] / 2) if len(numbers) == 4 else (left, top)
        if across is None and down is None:
            return None
        if across is None or down is None:
            kept = self._there(x if across is None else y)
            place = self._of(0 if across is None else across, 0 if down is None else down)
            return (kept[0], place[1]) if across is None else (place[0], kept[1])
        return self._of(across, down)

    def _of(self, x: float, y: float) -> Point:
        try:
            return self._fraction(float(x), float(y))
        except OverflowError as error:
            raise OutOfScreen(f"({x!r:.40}, {y!r:.40})") from error
        except ValueError as error:
            raise OutOfScreen(str(error)) from error

    def _there(self, what: str) -> Point:
        """Returns the pointer's position; raises NoAction if it is unknown."""
        if self.pointer is None:
            raise NoAction(f"{what} at no known place")
        return self.pointer

    def _offset(self, given: Mapping[str, Any], what: str) -> Point:
        """Computes the point at an offset from the pointer."""
        (x, y), self.pointer = self._there(what), None
        across, down = given.get("xOffset"), given.get("yOffset")
        if isinstance(across, list | tuple):
            across, down = cast(Sequence[float], across)[:2]
        if (across is None) != (down is None) and what != "a drag":  # pyautogui then uses the pointer's coordinate
            raise NoAction(f"{what} with one offset")
        if not across and not down:
            raise NoAction(f"{what} by nothing")
        try:
            (right, _), (_, bottom) = self._of(abs(across or 0), 0), self._of(0, abs(down or 0))
        except OutOfScreen as error:
            raise NoAction(f"{what} by more than the screen") from error
        return x + math.copysign(right, across or 0), y + math.copysign(bottom, down or 0)

    def _wait(self, given: Mapping[str, Any]) -> None:
        seconds = self._seconds(given, MAX_WAIT_S)
        fields = {"type": "wait", **({} if seconds is None else {"seconds": seconds})}
        if self._down is not None:
            self._since.append(fields)
        elif self._moved:  # a pause before the next action at the pointer
            self._paused = min(MAX_WAIT_S, (self._paused or 0.0) + (seconds or 0.0))
        else:
            self._act(**fields)

    def _move(self, name: str, given: Mapping[str, Any]) -> None:
        point = self._point(given) if name == "moveTo" else self._offset(given, name)
        self.pointer = point or self._there(name)
        self._moved, self._paused = True, None
        if self._down is not None:
            self._since.append({"type": "move", "x": self.pointer[0], "y": self.pointer[1]})

    def _click(self, name: str, given: Mapping[str, Any]) -> None:
        if self._down is not None:
            self._settle()
        self.pointer = self._point(given) or self.pointer
        self._moved = False
        if name == "long_press":
            (x, y), seconds = self._there(name), self._seconds(given, MAX_HOLD_S)
            self._act(type="long_press", x=x, y=y, **({} if seconds is None else {"seconds": seconds}))
            return
        side, count = _USUAL.get(name, ("left", 1))
        count = count if (named := given.get("clicks")) is None else int(named)
        button = _button(given.get("button"), side)
        if count > 1 and (given.get("interval") or 0) >= SEPARATE_S and (button, 1) in CLICKS:
            for _ in range(min(int(count), MAX_CALLS + 1)):
                self._clicked(CLICKS[button, 1], button)
            return
        if (kind := CLICKS.get((button, count))) is None:
            raise NoAction(f"not supported: {counted(count, 'click')} of the {button} button")
        self._report(given, "interval")
        self._clicked(kind, button)

    def _clicked(self, kind: str, button: str) -> None:
        """Adds a click at the pointer. If its place is unknown, a single click is a button that goes down and up."""
        if self.pointer is not None:
            self._act(type=kind, x=self.pointer[0], y=self.pointer[1])
        elif kind in ("left_double", "triple_click"):
            self._act(type=kind)
        else:
            self._act(type="mouse_down", button=button)
            self._act(type="mouse_up", button=button)

    def _scroll(self, name: str, given: Mapping[str, Any]) -> None:
        if self._down is not None:
            self._settle()
        self.pointer = self._point(given) or self.pointer
        self._moved = False
        amount = given.get("clicks") or 0
        if not int(amount):
            raise NoAction(f"a scroll by {amount!r}")
        at = dict(zip("xy", self.pointer, strict=True)) if self.pointer else {}
        self._report(given, "clicks")
        ways = ("right", "left") if name == "hscroll" else ("up", "down")
        self._act(type="scroll", **at, direction=ways[0 if amount > 0 else 1])

    def _button(self, name: str, given: Mapping[str, Any]) -> None:
        """Plays a button that goes down or up, or both for a drag."""
        button = _button(given.get("button"), "left")
        if name == "mouseDown":
            self._press(button, self._point(given))
            return
        if name == "mouseUp":
            self._let_go(button, self._point(given))
            return
        presses = given.get("mouseDownUp") is not False
        start = self.pointer
        self.pointer = end = self._point(given) if name == "dragTo" else self._offset(given, "a drag")
        if start is None or end is None:
            raise NoAction("a drag from or to no known place")
        if not presses:
            self._moved, self._paused = True, None
            if self._down is not None:
                self._since.append({"type": "move", "x": end[0], "y": end[1]})
            return
        if self._down is not None:
            self._settle()
        self._moved = False
        self._drag(button, start, end)

    def _press(self, button: str, point: Point | None) -> None:
        """Plays a button that goes down at a point, or at the pointer, whose place may be unknown."""
        if self._down is not None:
            self._settle()
        placed = point is not None or self._moved
        self.pointer = point or self.pointer
        self._down = _held("mouse_down", button, self.pointer if placed else None)
        self._start, self._since, self._moved = self.pointer, [], False

    def _let_go(self, button: str, point: Point | None) -> None:
        """Plays a button that goes up: the end of a click, a long press or a drag, or else an action of its own."""
        held, moved = self._down, self._moved
        if point is not None:
            self.pointer, moved = point, True
        start = self._start
        if held is None or start is None or not self._is_whole(button, held, point):
            if held is not None:
                self._settle()
            moved = point is not None or (moved and held is None)
            self._moved = False
            self._act(**_held("mouse_up", button, self.pointer if moved else None))
            return
        way = [(one["x"], one["y"]) for one in self._since if one["type"] == "move"]
        waits = [one for one in self._since if one["type"] == "wait"]
        self._down, self._since, self._moved = None, [], False
        end = point or (way[0] if way else None)
        if end is not None and end != start:
            self._drag(button, start, end)
        elif waits:
            seconds = sum(one.get("seconds", 0.0) for one in waits)
            self._act(
                type="long_press", x=start[0], y=start[1], **({"seconds": min(seconds, MAX_HOLD_S)} if seconds else {})
            )
        else:
            self._act(type=CLICKS[button, 1], x=start[0], y=start[1])

    def _is_whole(self, button: str, held: Mapping[str, Any], point: Point | None) -> bool:
        """Checks whether a button that went down and goes up now is one action: a click, a long press or a drag."""
        moves = sum(one["type"] == "move" for one in self._since) + (point is not None)
        if held.get("button", "left") != button or moves > 1:
            return False
        return button == "left" or not (self._since or point)

    def _drag(self, button: str, start: Point, end: Point) -> None:
        if button != "left":
            raise NoAction(f"not supported: a drag with the {button} button")
        self._act(type="drag", x=start[0], y=start[1], to_x=end[0], to_y=end[1])

    def _swipe(self, given: Mapping[str, Any]) -> None:
        """Plays a finger's swipe: a scroll in the opposite direction, or a drag if an amount is given."""
        self._settle()
        start, end = (self._point({"x": given.get(name)}) for name in ("from_coord", "to_coord"))
        if end is None:
            finger = given.get("direction") or "up"
            signs = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
            if finger not in signs:
                raise NoAction("a swipe in no direction")
            if (amount := given.get("amount")) is None:
                at = dict(zip("xy", start, strict=True)) if start else {}
                self._act(type="scroll", **at, direction=OPPOSITE[finger])
                return
            across, down = signs[finger]
            start = start or (0.5 - across * amount / 2, 0.5 - down * amount / 2)
            end = _within((start[0] + across * amount, start[1] + down * amount))
        else:
            self._report(given, "direction", "amount")
        if start is None:
            raise NoAction("a swipe from no known place")
        self._drag("left", _within(start), end)
        self.pointer = end

    def _plain(self, name: str, given: Mapping[str, Any]) -> None:
        """Plays a call without a point."""
        self._report(given, "interval")
        if name in ("press", "hotkey", "shortcut"):
            self._keys(name, given)
        elif name in ("keyDown", "keyUp"):
            key = single(_needed(given, "key", name))
            self._act(type="press" if name == "keyDown" else "release", key=key)
        elif name in ("write", "typewrite"):
            self._write(_needed(given, "message", name))
        elif name in ("open_app", "open_url"):
            app = name == "open_app"
            text = _needed(given, "app_name" if app else "url", name)
            self._act(**({"type": "open_app", "app_name": text} if app else {"type": "navigate", "content": text}))
        elif name == "response":
            self._act(type="finished", content=_needed(given, "answer", name))
        elif name in ENDS:
            self._terminate(name, given)
        elif name in ("call_user", "callUser"):
            self._act(type="call_user", content=given.get("content") or "")
        elif name in _PLAIN:
            self._act(type=_PLAIN[name])
        else:
            raise NoAction(f"not supported: {name}")

    def _keys(self, name: str, given: Mapping[str, Any]) -> None:
        keys = listed(given.get("keys"))
        if not keys:
            raise NoAction(f"{name} without a key")
        if name != "press":
            self._act(type="hotkey", key=together_in(keys))
            return
        times = given.get("presses")
        times = 1 if times is None else times
        if times < 1:
            raise NoAction(f"a key pressed {times} times")
        for _ in range(min(times, MAX_CALLS + 1)):
            for key in keys:
                self._act(type="hotkey", key=together([key]))

    def _write(self, message: Any) -> None:
        """Types text; in a list, single characters are text and names are keys, in this order."""
        if isinstance(message, str):
            self._act(type="type", content=message)
            return
        text = ""
        for one in cast(Sequence[str], message):
            if len(one) == 1:
                text += one
                continue
            if text:
                self._act(type="type", content=text)
            text = ""
            self._act(type="hotkey", key=together([one]))
        if text or not message:
            self._act(type="type", content=text)

    def _terminate(self, name: str, given: Mapping[str, Any]) -> None:
        try:
            success = name != "FAIL" and (is_unset(status := given.get("status")) or means_success(status))
        except ValueError as error:
            raise NoAction(f"{name}: {error}") from error
        given_key, other = ("info", "answer") if given.get("info") else ("answer", "info")
        content = given.get(given_key) or ""
        self._report(given, other)
        self._act(type="finished" if success else "call_user", content=content)


def means_success(status: object) -> bool:
    """Return whether a status means success; raise ValueError for an unknown status."""
    text = f"{status:g}" if isinstance(status, float) else str(status)
    word = re.sub(r"[\s-]+", "_", text.strip(" \t\r\n.!").lower())
    if word not in (*SUCCESS, *FAILURE):
        raise ValueError(f"an end with the status {str(status)[:80]!r}, which is none of {SUCCESS[0]} and {FAILURE[0]}")
    return word in SUCCESS


def _needed(given: Mapping[str, Any], argument: str, name: str) -> Any:
    if given.get(argument) is None:
        raise NoAction(f"{name} without its {argument}")
    return given[argument]


def _button(given: Any, usual: str) -> str:
    """Returns the button that an argument names, or the usual one."""
    if given is None:
        return usual
    button = BUTTONS.get(given.lower() if isinstance(given, str) else given)
    if button is None:
        raise NoAction(f"there is no button {given!r}")
    return button


def _held(kind: str, button: str, point: Point | None) -> dict[str, Any]:
    """Returns the fields of an action of a button at a place, or at the pointer."""
    place = {} if point is None else {"x": point[0], "y": point[1]}
    return {"type": kind, **place, **({} if button == "left" else {"button": button})}


def _within(point: Point) -> Point:
    return min(1.0, max(0.0, point[0])), min(1.0, max(0.0, point[1]))


def _written(call: Call) -> str:
    if call.written:
        return call.written
    arguments = [repr(one) for one in call.given] + [f"{name}={one!r}" for name, one in call.named.items()]
    return f"{call.module + '.' if call.module else ''}{call.function}({', '.join(arguments)})"
