"""OpenCUA: `## Thought`, `## Action` and `## Code` with PyAutoGUI calls; on Qwen2.5-VL pixels, on Qwen2-VL fractions.

Its prompts are those of two of its levels: with thoughts (L2) and without (L1). The sentence under `## Action` says
what the code does; a recorded step has none, so what is trained on says it in a template's words.
"""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from models.families.family import QWEN25, ModelFamily
from models.families.prompt import Message, screen_part, screen_turn, text_part, text_turn
from models.families.reading import Reading, Sides
from models.families.screen import Size
from models.families.template import template
from models.families.thinking import drafted
from models.policy import Context
from models.thoughts import templated_thought
from schemas.action import OPPOSITE, Action, CallUser, Drag, Finished, Press, Release, Wait, action_of, point_of
from schemas.config.sections import PolicyConfig
from schemas.failure import UsageError
from schemas.observation import Observation
from schemas.problem import named_problem

CLICKS = 5
"""Notches of a scroll that is written."""
_LINE = re.compile(r"^[ \t]*(?:pyautogui|computer)\.(\w+)\((.*)\)[ \t]*$", re.MULTILINE)
_LINE_END = re.compile(r"^[ \t]*(WAIT|DONE|FAIL)[ \t]*$", re.MULTILINE)
_STRING = re.compile(r"'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"")
_NUMBER = re.compile(r"(?:(\w+)\s*=\s*)?(-?\d+(?:\.\d+)?)")
_SECTION = re.compile(r"^[ \t]*#{0,3}[ \t]*(Observation|Thought|Action|Code):?[ \t]*$", re.MULTILINE)
_CODE = re.compile(r"^[ \t]*#{1,3}[ \t]*Code\b[:：]?", re.MULTILINE)
"""What the code stands under; code in the sections before it is a draft."""
_DRAFT = re.compile(rf"\b(?:pyautogui|computer)\.|{_LINE_END.pattern}|{_CODE.pattern}", re.MULTILINE)
_SIMPLE = {"click": "click", "doubleClick": "left_double", "tripleClick": "left_double", "triple_click": "left_double"}
_NAMES = {"click": "click", "left_double": "doubleClick", "right_single": "rightClick"}
_KEYS = {"press", "hotkey", "keyDown", "keyUp"}
BLANKS = {" ": "space", "\t": "tab", "\n": "enter", "\r": "enter"}
SHIFTS = {"shift", "shiftleft", "shiftright"}
_PLAIN = {
    "call_user": "call_user", "callUser": "call_user", "navigate_home": "press_home", "navigate_back": "press_back",
    "go_backward": "navigate_back",
}  # fmt: skip


class OpenCuaFamily(ModelFamily):
    """OpenCUA-7B, 32B and 72B: pixels of the picture that it is shown."""

    counts = "pixels"
    published = QWEN25
    dialects = ("box_v1",)
    templates = ("computer",)
    max_new_tokens = 2048

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        self.dialect = "pyautogui"

    def messages(self, context: Context) -> list[Message]:
        """Its prompt; past steps by their sentences, the last with their screens; the screen now, and the task."""
        chat = [text_turn("system", template("opencua-l2.txt" if context.thinks else "opencua-l1.txt"))]
        shown = len(context.turns) - (self.history_images - 1)
        for position, turn in enumerate(context.turns):
            if position >= shown:
                chat.append(screen_turn(turn.observation, self.limits))
            text = turn.thought or turn.action_text
            chat.append(text_turn("assistant", f"# Step {position + 1}:\n## Action:\n{text}\n"))
        asked = (
            f"\n# Task Instruction:\n{context.instruction}\n\n"
            "Please generate the next move according to the screenshot, task instruction and previous steps "
            "(if provided).\n"
        )
        return [*chat, {"role": "user", "content": [screen_part(context.observation, self.limits), text_part(asked)]}]

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """As `ModelFamily.question`, the screens before the question."""
        head = [text_turn("system", template("opencua-l1.txt"))] if acts else []
        shown = [*(screen_part(screen, self.limits) for screen in screens), text_part(question)]
        return [*head, {"role": "user", "content": shown}]

    def write(self, action: Action, screen: Size) -> str:
        """The action as code.

        Raises:
            UsageError: PyAutoGUI has no such action.
        """
        return "\n".join(_code(action, self.sides(screen), self.counts == "fraction"))

    def read_answer(self, answer: str, screen: Size) -> Reading:
        """The thought and the actions of the code."""
        code = deque(_CODE.finditer(answer), maxlen=1)
        if not code:
            return read_code(answer, self.sides(screen))
        found = read_code(answer[code[0].end() :], self.sides(screen))
        return replace(found, thought=_thought(answer[: code[0].start()]) or found.thought)

    def reply(self, thought: str, action: Action, screen: Size) -> str:
        """A whole reply of its level."""
        head, thought = drafted(thought if self.thinks else "", _DRAFT)
        head += f"## Thought:\n{thought}\n\n" if thought else ""
        code = f"```python\n{self.write(action, screen)}\n```"
        return f"{head}## Action:\n{templated_thought(action)}\n\n## Code:\n{code}"


class OpenCuaQwen2Family(OpenCuaFamily):
    """OpenCUA-Qwen2-7B: fractions of the screen."""

    counts = "fraction"


def read_code(text: str, sides: Sides) -> Reading:
    """The thought and the actions of a reply with PyAutoGUI calls; never raises for what a model may write."""
    shown, begin = "", len(text)
    lines = sorted([*_LINE.finditer(text), *_LINE_END.finditer(text)], key=lambda line: line.start())
    if lines:
        begin = lines[0].start()
        shown = text[begin : lines[-1].end()].strip()
    actions, problem = read_lines([(line[1], line[2] if line.re is _LINE else "") for line in lines], sides)
    error = None if actions else problem or f"no action in {text[-80:]!r}"
    return Reading(_thought(text[:begin]), shown, actions, error)


def read_lines(calls: Sequence[tuple[str, str]], sides: Sides) -> tuple[tuple[Action, ...], str]:
    """The actions of calls until the first that means none, and why it does not.

    Args:
        calls: name and arguments of each, the arguments as they are written.
        sides: how many units of its coordinates the screen is wide and high.
    """
    actions: list[Action] = []
    at: dict[str, float] = {}
    for name, given in calls:
        try:
            fields = _fields(name, given, sides, at)
            if name in ("moveTo", "click", "doubleClick") and "x" in fields:
                at = {axis: fields[axis] for axis in ("x", "y")}
            if name != "moveTo":
                actions.append(action_of(fields))
        except ValidationError as error:
            return tuple(actions), f"{named_problem(error)} in {f'{name}({given})'[:80]!r}"
        except ValueError as error:
            return tuple(actions), f"{error} in {f'{name}({given})'[:80]!r}"
    return tuple(actions), ""


def _thought(text: str) -> str:
    """What stands under `Thought`, or under `Action` where there is none."""
    parts = _SECTION.split(text.replace("```python", "").replace("```", ""))
    named = dict(zip(parts[1::2], parts[2::2], strict=False))
    return (named.get("Thought") or named.get("Action") or parts[0]).strip()


def _fields(name: str, given: str, sides: Sides, at: dict[str, float]) -> dict[str, Any]:
    """The fields of an action from a call; `at` is where the cursor is."""
    strings = [_unquoted(one or other) for one, other in _STRING.findall(given)]
    numbers = _NUMBER.findall(_STRING.sub("", given)[:400])
    named = {key: float(value) for key, value in numbers if key}
    plain = [float(value) for key, value in numbers if not key]
    across = named.get("x", plain[0] if len(plain) > 1 else None)
    down = named.get("y", plain[1] if len(plain) > 1 else None)
    place = at if across is None or down is None else {"x": across / sides[0], "y": down / sides[1]}
    if name in _SIMPLE or name in ("rightClick", "moveTo"):
        twice = named.get("clicks", 1) > 1
        right = name == "rightClick" or "right" in strings
        kind = "right_single" if right else "left_double" if twice else _SIMPLE.get(name, "click")
        return {"type": kind, **place}
    if name in ("swipe", "long_press", "open_app"):
        return _touch(name, plain, place, strings, sides)
    if name in ("dragTo", "drag"):
        if {"right", "secondary", "middle"} & set(strings):
            raise ValueError("there is no drag with another button than the left one")
        return {"type": "drag", **at, **{f"to_{key}": value for key, value in place.items()}}
    if name in ("scroll", "hscroll", "vscroll"):
        amount = named.get("clicks", plain[0] if plain else 0)
        ways = ("right", "left") if name == "hscroll" else ("up", "down")
        return {"type": "scroll", **{"x": 0.5, "y": 0.5, **place}, "direction": ways[0 if amount > 0 else 1]}
    if name in _KEYS:
        if name in ("keyDown", "keyUp"):
            return {"type": "press" if name == "keyDown" else "release", "key": key_of("".join(strings[:1]))}
        return {"type": "hotkey", "key": pressed(strings)}
    if name in ("write", "typewrite"):
        return {"type": "type", "content": "".join(strings[:1])}
    if name in ("wait", "WAIT", "sleep"):
        return {"type": "wait"}
    if name in ("terminate", "DONE", "FAIL"):
        info = strings[1] if len(strings) > 1 else ""
        failed = name == "FAIL" or "failure" in strings
        return {"type": "call_user"} if failed else {"type": "finished", "content": info}
    if name == "response":
        return {"type": "finished", "content": "".join(strings[:1])}
    if name in _PLAIN:
        return {"type": _PLAIN[name]}
    if name == "open_url":
        return {"type": "navigate", "content": "".join(strings[:1])}
    raise ValueError(f"there is no action for {name!r}")


def key_of(name: str) -> str:
    """A key as our actions call it; raises ValueError for what is none.

    Pyautogui takes names of several letters in any case, and a blank, a tab or a line's end for the key that writes it.
    """
    key = BLANKS.get(name, name.strip())
    if not key or len(key.split()) > 1:
        raise ValueError(f"{name!r} is no key")
    return key.lower() if len(key) > 1 else key


def pressed(names: Sequence[str]) -> str:
    """Keys that are pressed together, as a hotkey has them; of a capital letter pyautogui presses shift as well. Raises
    ValueError for what is no key."""
    keys = [key_of(name) for name in names]
    if capitals := [key for key in keys if len(key) == 1 and key.isupper()]:
        at = keys.index(capitals[0])
        shift = [] if SHIFTS & set(keys[:at]) else ["shift"]
        keys = [*keys[:at], *(key for key in keys[at:] if key not in SHIFTS)] if shift else keys
        keys = [*keys[:at], *shift, *(key.lower() for key in keys[at:])]
    return " ".join(keys)


def _touch(name: str, plain: list[float], place: dict[str, float], strings: list[str], sides: Sides) -> dict[str, Any]:
    """The fields of what is done with a finger. A way from one place to another is a drag; by direction alone it is a
    scroll, of the screen and so the other way."""
    if name == "open_app":
        return {"type": "open_app", "app_name": "".join(strings[:1])}
    if name == "long_press":
        return {"type": "long_press", **place}
    points = [number / sides[axis % 2] for axis, number in enumerate(plain[:4])]
    if len(points) == 4:
        return {"type": "drag", **dict(zip(("x", "y", "to_x", "to_y"), points, strict=True))}
    x, y = points if len(points) == 2 else (0.5, 0.5)
    finger = "".join(strings[:1]) or "up"
    return {"type": "scroll", "x": x, "y": y, "direction": OPPOSITE.get(finger, finger)}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text, flags=re.DOTALL)


def _code(action: Action, sides: Sides, fraction: bool) -> list[str]:
    def at(x: float, y: float) -> str:
        across, down = (x * sides[0], y * sides[1]) if fraction else (round(x * sides[0]), round(y * sides[1]))
        return f"x={across:.4g}, y={down:.4g}" if fraction else f"x={across}, y={down}"

    point = point_of(action)
    if action.type in _NAMES and point:
        return [f"pyautogui.{_NAMES[action.type]}({at(*point)})"]
    if isinstance(action, Drag):
        end = at(action.to_x, action.to_y)
        return [f"pyautogui.moveTo({at(action.x, action.y)})", f"pyautogui.dragTo({end}, button='left')"]
    if action.type == "scroll":
        amount = CLICKS if action.direction in ("up", "right") else -CLICKS
        name = "scroll" if action.direction in ("up", "down") else "hscroll"
        return [f"pyautogui.moveTo({at(action.x, action.y)})", f"pyautogui.{name}({amount})"]
    if action.type == "type":
        return [f"pyautogui.write(message={action.content!r})"]
    if action.type == "hotkey":
        keys = action.key.split(" ")
        return [f"pyautogui.hotkey({keys!r})" if len(keys) > 1 else f"pyautogui.press({keys[0]!r})"]
    if isinstance(action, Press | Release):
        return [f"pyautogui.key{'Down' if action.type == 'press' else 'Up'}({action.key!r})"]
    if isinstance(action, Wait):
        return ["computer.wait()"]
    if isinstance(action, Finished | CallUser):
        return [f"computer.terminate(status={'success' if isinstance(action, Finished) else 'failure'!r})"]
    raise UsageError(f"PyAutoGUI has no {action.type}, so opencua cannot write it.", "Take another `policy.family`.")
