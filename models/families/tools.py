"""Converts Qwen's tools `computer_use` and `mobile_use` to this project's actions, and back.

The two action spaces differ as follows. A drag is two calls of `computer_use`: `mouse_move` to its start and
`left_click_drag` to its end. Without a `mouse_move` in the same reply, a drag begins at the pointer: the button goes
down there, and up at the end. A scroll has a fixed number of pixels, positive for up. Three clicks become a double
click, as in Qwen's own tool, unless the family's tool has real ones. `terminate` with failure becomes a call for a
person, and `answer` becomes a finish with content. Calls of models that were trained from Qwen's are read, too: drags
from place to place and `interact` (GUI-Owl), `visit_url` and `history_back` (Fara), `key_down` and `key_up` (EvoCUA),
swipes in a direction, drags between named places and `ask_user` (MAI-UI), buttons that go down and up, and `call_user`
(Qwen3.6).
"""

import ast
import json
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from pydantic import ValidationError

from common.text import counted
from models.families.code.arguments import (
    CLEARS,
    ENTERS,
    Arguments,
    button_of,
    count_of,
    held,
    is_success,
    keys_of,
    meant,
    refuse_held,
    written_seconds,
)
from models.families.reading import ParsedReply, Sides, is_true, place_in, typing
from schemas.action import (
    OPPOSITE,
    Action,
    Button,
    CallUser,
    Click,
    Direction,
    Drag,
    Finished,
    Hotkey,
    LeftDouble,
    LongPress,
    MiddleSingle,
    MouseDown,
    MouseUp,
    Move,
    Navigate,
    NavigateBack,
    OpenApp,
    Press,
    PressBack,
    PressEnter,
    PressHome,
    PressMenu,
    PressRecent,
    Release,
    RightSingle,
    Scroll,
    TripleClick,
    Type,
    UseTool,
    Wait,
    action_of,
    point_of,
    type_and_place,
)
from schemas.keyboard import MAX_KEYS, is_key, names_of, pyautogui_names, single, together_in
from schemas.problem import named_problem

NAMES = ("computer_use", "mobile_use", "computer")
"""Tools whose calls are read; trycua/cua also accepts `computer` from Fara (`loops/fara/config.py`)."""
PIXELS = 5
"""Distance of each written scroll, in pixels."""
SECONDS = 2
"""Seconds of a written wait or long press that has none."""
OPEN, CLOSE = "<tool_call>", "</tool_call>"
_LABELS = re.compile(r"\A\s*(?:Thought|Action)[:：][ \t]*", re.IGNORECASE)
_CALL = re.compile(r"<tool_call>\s*(?:```\w*\s*)?(?=\{)")
"""A tag that a call follows, as opposed to a mention of the tag."""
_POINTED = {
    "left_click": "click",
    "click": "click",
    "double_click": "left_double",
    "triple_click": "left_double",
    "right_click": "right_single",
    "middle_click": "middle_single",
    "long_press": "long_press",
}
_CLICKS = {"triple_click": 3}
"""Numbers of clicks by name, for names whose performed action has another number."""
_WRITTEN = {
    "click": "left_click", "left_double": "double_click", "triple_click": "triple_click",
    "right_single": "right_click", "middle_single": "middle_click", "move": "mouse_move",
    "mouse_down": "left_mouse_down", "mouse_up": "left_mouse_up",
}  # fmt: skip
_ONCE: Mapping[str, Button] = {
    "left_click": "left", "click": "left", "right_click": "right", "middle_click": "middle"
}  # fmt: skip
"""Single clicks, and their buttons."""
_SEVERAL = ("double_click", "triple_click")
_BUTTON = {"left_mouse_down": "mouse_down", "left_mouse_up": "mouse_up"}
_DRAGS = ("swipe", "drag", "left_click_drag", "scroll")
"""Actions that become a drag if a call has two places. A scroll between two places is a finger's."""
_HELD = {"key_down": Press, "key_up": Release}
_BUTTONS: dict[str, Action] = {
    "back": PressBack(), "home": PressHome(), "enter": PressEnter(), "menu": PressMenu()
}  # fmt: skip
_EVENTS: dict[str, Action] = {
    "home": PressHome(), "back": PressBack(), "menu": PressMenu(), "app_switch": PressRecent(),
    "del": Hotkey(key="backspace"), "forward_del": Hotkey(key="delete"),
    "move_home": Hotkey(key="home"), "move_end": Hotkey(key="end"),
}  # fmt: skip
"""Android's key events whose names mean another key on a keyboard, or none."""
_EVENT = re.compile(r"[a-z][a-z0-9_]{1,31}")
_WRAPPING = re.compile(r"""\A(?:keys\s*+=\s*+)?[\["']*+(?=\w)|(?<=\w)["'\]]++\Z""")
"""What models write around a key that is already an item of a list, as in `keys=["ctrl"`."""
_COMMA = re.compile(r"""["']?\s*+,\s*+["']?(?=\w)""")
_ACTION = re.compile(r"\bAction[:：]")
_CLOSE = re.compile(re.escape(CLOSE))
_MOST_ENDS = 8
"""Maximum candidate ends of a call at which it is tried as a Python literal."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Builds an object; raises ValueError if a key has two values."""
    made = dict[str, Any]()
    for key, value in pairs:
        if made.setdefault(key, value) != value:
            raise ValueError(f"argument {key[:40]!r} twice")
    return made


_INTEGER = re.compile(r"[-+]?\d{1,9}")
_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_once)  # models leave newlines in a text unescaped
_UNTAGGED = re.compile(r'\{\s*"(?:name|arguments|action)"\s*:')

Place = tuple[float, float]
Written = tuple[Mapping[str, Any] | UseTool, int, int]
"""Arguments of a call, or the call of a function of the environment, and its begin and end in the reply."""
Performed = Callable[[Arguments, Sides], list[Action]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A family's tool, as far as it differs from Qwen's.

    Args:
        names: names of the tool.
        aliases: names of actions by other names of the same action.
        refused: Qwen's actions that are different actions here, which this project lacks.
        others: actions that Qwen's tool lacks, or that have other arguments here.
        triples: whether three clicks are three, and not a double click.
        at_pointer: whether clicks without a coordinate are performed at the pointer; otherwise they are an error.
        holds: whether the `text` of a click or a scroll names keys that are held during it.
        named: whether each action is a function, so that the name of a call is its action.
        enters: whether typing presses enter if the call does not say so.
        value: converts an argument that is a text, by its name.
        phone: whether `key` means key events of a phone, whose `home` and `back` are its buttons.
        open: whether a call of any other name is a call of a function of the environment; otherwise it is an error.
    """

    names: tuple[str, ...] = NAMES
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    refused: frozenset[str] = frozenset()
    others: Mapping[str, Performed] = field(default_factory=dict[str, Performed])
    triples: bool = False
    at_pointer: bool = False
    holds: bool = False
    named: bool = False
    enters: bool = False
    value: Callable[[str, str], Any] = field(default=lambda name, text: text)
    open: bool = False
    phone: bool = False


def read_calls(text: str, sides: Sides, tool: Tool | None = None) -> ParsedReply:
    """Reads the thought and the actions of a reply with tool calls; never raises for any text of a model.

    Args:
        text: the thought, then one or several `<tool_call>`s; the JSON of a call without a tag is read, too.
        sides: width and height of the screen, in units of the coordinates.
        tool: the family's tool; Qwen's if not given.
    """
    tool = tool or Tool()
    begin = _begin(text)
    if begin < 0:
        return ParsedReply(text.strip(), "", error=f"no tool call in {text[:80]!r}")
    return perform(text, begin, written_calls(text, begin, tool), sides, tool)


def perform(text: str, begin: int, calls: Iterable[Written], sides: Sides, tool: Tool) -> ParsedReply:
    """Converts the calls of a reply to a reading, up to the first invalid call.

    Args:
        text: the reply.
        begin: where the first call begins.
        calls: the calls; iterating raises ValueError or RecursionError at a call that cannot be read.
        sides: width and height of the screen, in units of the coordinates.
        tool: the family's tool.
    """
    thought = _LABELS.sub("", text[:begin]).strip()
    shown, error = text[begin:].strip(), None
    actions: list[Action] = []
    parts, unused = 1, tuple[str, ...]()
    cursor: Place | None = None
    moved: object = None  # the place of a move of the pointer that is not performed yet
    named = tuple[str, ...]()  # arguments of the call that is being read
    others, last = list[str](), -1
    try:
        for call, start, end in calls:
            if isinstance(call, UseTool):
                others, last = [*others, text[last:start] if last >= 0 else ""], end
                actions += [*(_moves(cursor) if moved is not None else []), call]
                moved = None
                continue
            named, arguments = tuple(call), Arguments(call)
            before = cursor
            found, cursor = _action(arguments, sides, cursor, tool)
            clicks = None if tool.triples else _CLICKS.get(str(call.get("action")))
            keys = _during(found, arguments) if tool.holds else []
            found = [*found[:-1], *(one for action in found[-1:] for one in meant(action, arguments, clicks))]
            found = [*(Press(key=key) for key in keys), *found, *(Release(key=key) for key in reversed(keys))]
            others, last = [*others, text[last:start] if last >= 0 else ""], end
            place = call.get("coordinate")
            points = moved is not None and not (found and _is_at_pointer(call, tool))
            moved = None if found else place
            found = [*_moves(before), *found] if points else found
            if not actions:
                parts, unused = len(found) or 1, (*unused, *arguments.unused)
            named = ()
            actions += found
        actions += _moves(cursor) if moved is not None else []
        error = None if actions else "there is no call"
    except ValidationError as failure:
        error = f"{named_problem(failure)} in {shown[:80]!r}"
    except (ValueError, RecursionError) as failure:
        reason = f"no JSON: {failure.msg}" if isinstance(failure, json.JSONDecodeError) else str(failure)
        held = f", in a call with {', '.join(named)[:120]}," if named else ""
        error = f"{reason[:120]}{held} in {shown[:80]!r}"
    if error and actions:
        unused = (*unused, f"a later call: {error}")
    while parts < len(actions) and isinstance(actions[parts - 1], Move):  # a move belongs to the action after it
        parts += 1
    after = "\n".join([*others, text[last:]]) if actions and last >= 0 else ""
    return ParsedReply(thought, shown, tuple(actions), None if actions else error, parts, unused, after=after)


def _during(found: list[Action], given: Arguments) -> list[str]:
    """Returns the keys that are held during the last action; none if it has no place."""
    placed = found and (point_of(found[-1]) or isinstance(found[-1], Scroll))
    return [single(key) for key in held(given)] if placed else []


def _moves(place: Place | None) -> list[Action]:
    return [] if place is None else [Move(x=place[0], y=place[1])]


def _begin(text: str) -> int:
    """Finds where the first call begins, its tag included; -1 without one.

    A tag within the texts of a call without a tag is text. A tag that no call follows is text, too.
    """
    tagged, untagged = _CALL.search(text), _UNTAGGED.search(text)
    if tagged and untagged and untagged.start() < tagged.start():
        try:
            end = _DECODER.raw_decode(text, untagged.start())[1]
        except (ValueError, RecursionError):
            end = 0
        tagged = None if end > tagged.start() else tagged
        if tagged is None:
            return untagged.start()
    if tagged:
        return tagged.start()
    labels = [*deque(_ACTION.finditer(text), maxlen=1)]  # JSON before the label is a draft
    found = _UNTAGGED.search(text, labels[0].end() if labels else 0) or untagged
    opened = text.find(OPEN)
    if opened >= 0 and not (found and found.start() < opened):
        return opened
    return found.start() if found else text.find("{")


def written_calls(text: str, begin: int, tool: Tool) -> Iterator[Written]:
    """Yields each call in JSON; raises ValueError for a call that cannot be read.

    Each call follows a tag. The first call may lack the tag, or have words between. A tag within a call's texts is
    text.
    """
    while begin >= 0:
        start = text.find("{", begin)
        if start < 0:
            other = ", but as XML, which `qwen3.5` reads" if "<function" in text[begin:] else ""
            raise ValueError(f"a tool call without JSON{other}")
        call, end = _decoded(text, start)
        if not isinstance(call, dict):
            raise ValueError("a tool call that is no JSON object")
        found = cast(dict[str, Any], call)
        name = found.pop("name", None)
        if name not in (None, *tool.names) and not (tool.open and isinstance(name, str)):
            raise ValueError(no_tool(name, tool))
        held_in = "arguments" if "arguments" in found or not tool.named else "parameters"
        arguments = found.get(held_in, found)
        if isinstance(arguments, str):  # a string in OpenAI's protocol
            arguments, _ = _DECODER.raw_decode(arguments.strip())
        if not isinstance(arguments, dict):
            raise ValueError("a tool call whose arguments are no JSON object")
        given = cast(dict[str, Any], arguments)
        if tool.open and name not in (None, *tool.names):
            yield UseTool(name=cast(str, name), arguments=given), begin, end
            following = _CALL.search(text, end)
            begin = following.start() if following else -1
            continue
        if tool.named and given.pop("action", name) != name:
            raise ValueError(f"{name} has an argument `action`")
        yield valued({"action": name, **given} if tool.named else given, tool), begin, end
        following = _CALL.search(text, end)
        begin = following.start() if following else -1


def valued(arguments: Mapping[str, Any], tool: Tool) -> dict[str, Any]:
    """Converts the arguments that are texts."""
    return {key: tool.value(key, one) if isinstance(one, str) else one for key, one in arguments.items()}


def no_tool(name: object, tool: Tool) -> str:
    """Returns the error of a call of another tool."""
    return f"there is no tool {str(name)[:40]!r}; known: {', '.join(tool.names)}"


def _decoded(text: str, start: int) -> tuple[Any, int]:
    """Decodes the JSON, or a Python literal equal to JSON, that begins there, and finds its end.

    Fara's and GUI-Owl's own clients also read such literals. Raises ValueError if the text is neither.
    """
    try:
        return _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        ends = [*(found.start() for found in islice(_CLOSE.finditer(text, start), _MOST_ENDS)), len(text)]
        for end in ends:  # an end within a string leaves the literal open
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", SyntaxWarning)
                    found = ast.literal_eval(text[start:end].strip())
                return json.loads(json.dumps(found)), end
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
        raise error from None


def _is_at_pointer(call: Mapping[str, Any], tool: Tool) -> bool:
    """Checks whether a call acts at the pointer's place, or begins a drag there."""
    name = str(call.get("action"))
    name = tool.aliases.get(name, name)
    drags = name in ("left_click_drag", "drag") and call.get("coordinate2") is None
    return drags or (call.get("coordinate") is None and name in (*_POINTED, *_BUTTON, "scroll", "hscroll", "swipe"))


def _action(given: Arguments, sides: Sides, cursor: Place | None, tool: Tool) -> tuple[list[Action], Place | None]:
    """Converts a call into actions (none for a mere move), and returns the cursor's place after the call."""
    name = str(given.take("action") or "")[:40]
    name = tool.aliases.get(name, name)
    if name in tool.others:
        return tool.others[name](given, sides), cursor
    if name in tool.refused:
        raise ValueError(f"there is no action for {name!r}")
    place = given.take("coordinate")
    at = place_in(place, sides) if place is not None else cursor
    if name == "mouse_move":
        _there(at, name)
        refuse_held(name, given)
        return [], at
    if name in _POINTED:
        if at is None and tool.at_pointer and name in _ONCE:
            return _clicked(given, _ONCE[name]), None
        if at is None and tool.at_pointer and name in _SEVERAL:
            return [
                _clicked_often(given, "triple_click" if name == "triple_click" and tool.triples else "left_double")
            ], None
        x, y = _there(at, name)
        kind = "triple_click" if name == "triple_click" and tool.triples else _POINTED[name]
        return [action_of({"type": kind, "x": x, "y": y})], at
    if name in _BUTTON:
        there = {} if at is None else {"x": at[0], "y": at[1]}
        return [action_of({"type": _BUTTON[name], **there})], at
    if name in _DRAGS and (end := given.take("coordinate2", "end_coordinate")) is not None:
        to = place_in(end, sides)
        start = given.take("start_coordinate") if place is None else None
        return [_drag(_there(at if start is None else place_in(start, sides), name), to)], to
    if name == "swipe" and (way := given.take("direction")) is not None:  # of the finger
        return [_scroll(at, _opposite(way))], at
    if name == "swipe":
        raise ValueError("swipe without `coordinate2` or `direction`")
    if name in ("left_click_drag", "drag"):
        to, start = _there(place and at, name), given.take("start_coordinate")
        begin = cursor if start is None else place_in(start, sides)
        if begin is None:
            return [MouseDown(), MouseUp(x=to[0], y=to[1])], to
        return [_drag(begin, to)], to
    if name in ("scroll", "hscroll"):
        return [_scroll(at, _direction(name, given.look("pixels")))], at
    if name == "type":
        enter, clear = given.take(*ENTERS), is_true(given.take(*CLEARS))
        enter = tool.enters if enter is None else is_true(enter)
        before, text = typing(given.text("text"), at if place is not None else None, enter, clear)
        return [*before, Type.model_validate({"content": text})], at
    if name in _HELD:
        return _held(name, given), at
    if name == "key" and tool.phone:
        return [_key_event(given)], at
    return [_plain(name, given)], at


def _key_event(given: Arguments) -> Action:
    """Converts a key event of a phone; an environment performs or refuses an event that no keyboard has."""
    names = [str(one) for one in flat(keys_of(given))]
    if len(names) != 1:
        return Hotkey(key=together_in(names))
    event = names[0].strip().lower().removeprefix("keycode_")
    if event in _EVENTS:
        return _EVENTS[event]
    unknown = _EVENT.fullmatch(event) and not is_key(event)
    return Hotkey(key=event if unknown else together_in([event if is_key(event) else names[0]]))


def _plain(name: str, given: Arguments) -> Action:
    """Converts a call that has no place into an action."""
    if name == "key":
        return Hotkey(key=together_in(map(str, flat(keys_of(given)))))
    if name == "system_button":
        button = str(given.take("button"))[:40]
        if button.lower() not in _BUTTONS:
            raise ValueError(f"there is no action for the button {button!r}")
        return _BUTTONS[button.lower()]
    if name == "terminate":
        return Finished() if is_success(given) else asking(given, "text")
    if name in ("interact", "ask_user", "call_user"):
        return asking(given, "text")
    made: dict[str, Callable[[], Action]] = {
        "open": lambda: OpenApp.model_validate({"app_name": given.text(_app_key(given))}),
        "answer": lambda: Finished.model_validate({"content": given.text("text")}),
        "wait": Wait,
        "visit_url": lambda: Navigate.model_validate({"content": given.text("url")}),
        "history_back": NavigateBack,
    }
    if name not in made:
        raise ValueError(f"there is no action for {name!r}")
    return made[name]()


def asking(given: Arguments, name: str) -> Action:
    """Converts a call for a person, with the words of this argument if it has any."""
    return CallUser.model_validate({"content": given.text(name) if given.holds_text(name) else ""})


def _scroll(at: Place | None, direction: Direction) -> Scroll:
    return Scroll(direction=direction) if at is None else Scroll(x=at[0], y=at[1], direction=direction)


_PLACES = frozenset({"x", "y", "point", "position", "box", "bbox", "location"})
"""Names under which other tools have a place; a click with one of them is none at the pointer."""


def _clicked(given: Arguments, button: Button) -> list[Action]:
    """Converts a click at the pointer: the button goes down and up there."""
    _refuse_other(given, (None, 1), button)
    return [MouseDown(button=button), MouseUp(button=button)]


def _clicked_often(given: Arguments, kind: str) -> Action:
    """Converts a double or triple click at the pointer."""
    _refuse_other(given, (None, 3 if kind == "triple_click" else 2), "left")
    return action_of({"type": kind})


def _refuse_other(given: Arguments, counts: tuple[int | None, ...], button: Button) -> None:
    """Raises ValueError for a click at the pointer with another number of clicks or button, a place, or held keys."""
    if (count := count_of(given)) not in counts or button_of(given) not in ("", button):
        raise ValueError(f"not supported: {count or 'other'} clicks at the pointer")
    if misplaced := sorted(_PLACES & {*given.names}):
        raise ValueError(f"a place is no `{misplaced[0]}`, but a `coordinate`")
    refuse_held("click", given)


def _app_key(given: Arguments) -> str:
    """Returns the argument that names an app; GUI-Owl's client for desktops reads `app_name`."""
    return "app_name" if given.holds_text("app_name") and not given.holds_text("text") else "text"


def _held(name: str, given: Arguments) -> list[Action]:
    """Converts a call that holds or releases keys: one action for each key, the releases in reverse order."""
    keys = [single(one) for key in flat(keys_of(given)) for one in names_of(str(key))]
    if not 0 < len(keys) <= MAX_KEYS:
        raise ValueError(f"{name} of {counted(len(keys), 'key')}, and it has 1 to {MAX_KEYS}")
    return [_HELD[name](key=key) for key in (keys if name == "key_down" else reversed(keys))]


def flat(keys: Any) -> Iterator[Any]:
    """Flattens a nested list of keys and unwraps keys in brackets or quotes, as OSWorld's Qwen agents do."""
    for key in cast(list[Any], keys) if isinstance(keys, list) else [keys]:
        if isinstance(key, list):
            yield from flat(key)
        elif isinstance(key, str) and (inner := _WRAPPING.sub("", key)) != key:
            yield from _COMMA.split(inner)
        elif key is not None:
            yield key


def _opposite(way: object) -> Direction:
    """Returns the direction in which a screen scrolls if a finger moves the given way."""
    if (found := OPPOSITE.get(str(way).strip().lower())) is None:
        raise ValueError(f"there is no direction {str(way)[:40]!r}")
    return found


def _drag(start: Place, end: Place) -> Drag:
    return Drag(x=start[0], y=start[1], to_x=end[0], to_y=end[1])


def _direction(name: str, pixels: Any) -> Any:
    if isinstance(pixels, str) and _INTEGER.fullmatch(pixels.strip()):
        pixels = int(pixels)
    if isinstance(pixels, bool) or not isinstance(pixels, int | float) or not pixels:
        raise ValueError(f"{name} without `pixels`" if pixels is None else f"{name} of {str(pixels)[:20]} pixels")
    return ("up" if pixels > 0 else "down") if name == "scroll" else ("right" if pixels > 0 else "left")


def _there(place: Place | None, name: str) -> Place:
    if place is None:
        raise ValueError(f"{name} without a coordinate")
    return place


def write_calls(action: Action, tool: str, sides: Sides, spec: Tool | None = None) -> str:
    """Writes an action as calls of a tool.

    Args:
        action: the action.
        tool: name of the tool.
        sides: width and height of the screen, in units of the coordinates.
        spec: the family's tool; Qwen's if not given.

    Raises:
        ValueError: the tool has no such action.
    """
    return "\n".join(in_json(tool, one) for one in arguments_of(action, tool, sides, spec))


def arguments_of(action: Action, tool: str, sides: Sides, spec: Tool | None = None) -> list[dict[str, Any]]:
    """Lists the arguments of the calls that an action is written as. The arguments and errors are those of
    `write_calls`."""
    made = _mobile(action, sides) if tool == "mobile_use" else _computer(action, sides, spec or Tool())
    if made is None:
        words = " with a text" if isinstance(action, CallUser) else ""
        raise ValueError(f"{tool} has no action for {type_and_place(action)}{words}")
    return made


def in_json(tool: str, arguments: Mapping[str, Any], separators: tuple[str, str] = (", ", ": ")) -> str:
    """Writes a call in JSON, between its tags, with these separators of items and of names."""
    call = json.dumps({"name": tool, "arguments": arguments}, ensure_ascii=False, separators=separators)
    return f"{OPEN}\n{call}\n{CLOSE}"


def units(x: float, y: float, sides: Sides) -> list[int]:
    """Rounds a place to whole units."""
    return [round(x * sides[0]), round(y * sides[1])]


def where(action: Action, sides: Sides) -> dict[str, list[int]]:
    """Returns the argument for the place of an action; none for an action at the pointer."""
    return {} if (point := point_of(action)) is None else {"coordinate": units(*point, sides)}


def _computer(action: Action, sides: Sides, spec: Tool) -> list[dict[str, Any]] | None:
    if isinstance(action, Click | LeftDouble | RightSingle | MiddleSingle | Move) or (
        isinstance(action, TripleClick) and spec.triples
    ):
        at = where(action, sides)
        return [{"action": _WRITTEN[action.type], **at}] if at or spec.at_pointer else None
    if isinstance(action, Drag):
        start, end = units(action.x, action.y, sides), units(action.to_x, action.to_y, sides)
        return [{"action": "mouse_move", "coordinate": start}, {"action": "left_click_drag", "coordinate": end}]
    if isinstance(action, Scroll):
        name = "scroll" if action.direction in ("up", "down") else "hscroll"
        pixels = PIXELS if action.direction in ("up", "right") else -PIXELS
        return [{"action": name, **where(action, sides), "pixels": pixels}]
    if isinstance(action, Hotkey):
        return [{"action": "key", "keys": pyautogui_names(action.key)}]
    return _either(action)


def _mobile(action: Action, sides: Sides) -> list[dict[str, Any]] | None:
    if isinstance(action, Click | LongPress):
        held = {"time": written_seconds(action.seconds, SECONDS)} if isinstance(action, LongPress) else {}
        return [{"action": action.type, "coordinate": units(action.x, action.y, sides), **held}]
    if isinstance(action, Drag):
        start, end = units(action.x, action.y, sides), units(action.to_x, action.to_y, sides)
        return [{"action": "swipe", "coordinate": start, "coordinate2": end}]
    if isinstance(action, OpenApp):
        return [{"action": "open", "text": action.app_name}]
    if isinstance(action, PressBack | PressHome | PressEnter | PressMenu):
        return [{"action": "system_button", "button": action.type.removeprefix("press_").capitalize()}]
    if isinstance(action, PressRecent) or (isinstance(action, Hotkey) and len(names_of(action.key)) == 1):
        events = {event for event, meant in _EVENTS.items() if meant == action}
        return [{"action": "key", "text": min(events) if events else cast(Hotkey, action).key}]
    return _either(action)


def _either(action: Action) -> list[dict[str, Any]] | None:
    """Writes the actions that both tools have."""
    if isinstance(action, Type):
        return [{"action": "type", "text": action.content}]
    if isinstance(action, Wait):
        return [{"action": "wait", "time": written_seconds(action.seconds, SECONDS)}]
    if isinstance(action, Finished):
        done = {"action": "terminate", "status": "success"}
        return [{"action": "answer", "text": action.content} if action.content else done]
    gives_up = isinstance(action, CallUser) and not action.content
    return [{"action": "terminate", "status": "failure"}] if gives_up else None


def held_button(action: MouseDown | MouseUp, sides: Sides) -> dict[str, Any]:
    """Returns the arguments of the call for the left button; raises ValueError for another button."""
    if action.button != "left":
        raise ValueError(f"it has no {action.type} of the {action.button} button")
    return {"action": _WRITTEN[action.type], **where(action, sides)}
