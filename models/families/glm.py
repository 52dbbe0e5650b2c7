"""GLM-4.1V and 4.5V: one user turn with the history as text. Replies are JSON with boxes on a phone, and calls on a
desktop."""

import json
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, cast

from pydantic import ValidationError

from models.families.code.arguments import CLEARS, ENTERS, Arguments, is_success, meant
from models.families.dialects import THOUSANDTHS, format_action
from models.families.family import ModelFamily
from models.families.prompt import Message, screen_part, text_part
from models.families.reading import MOST_LABELS, ParsedReply, end_of_call, is_true, place_in, read_text, typing
from models.families.screen import Size
from models.families.template import filled
from models.families.thinking import between, readable
from models.policy import Context
from schemas.action import (
    OPPOSITE,
    Action,
    CallUser,
    Click,
    Drag,
    Finished,
    Hotkey,
    LeftDouble,
    LongPress,
    MiddleSingle,
    Move,
    OpenApp,
    RightSingle,
    Scroll,
    Wait,
    action_of,
    point_of,
    type_and_place,
)
from schemas.action import Type as TypeText
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from schemas.problem import named_problem

_BOX = re.compile(r"<\|(?:begin|end)_of_box\|>|</?answer>")
_MEMORY = re.compile(r"(?:<\|end_of_box\|>|</answer>|\s)*^[ \t]*Memory:[ \t]*", re.MULTILINE)
"""Label of the memory that follows a desktop's call."""
_KEPT = re.compile(r"Memory: ")
"""Label within a phone's thought that also has a memory."""
_MARK = re.compile(r"<\|begin_of_box\|>")
_PARTS = re.compile(r"(?:^|\n)[ \t]*(Memory|Reason|Action|Memory_Updated):[ \t]*")
_CALL = re.compile(
    r"\b(?:left|right|middle)_click\(|\b(?:left_double_click|left_drag|hover|key|type|scroll|WAIT|DONE|FAIL)\("
)
_DESKTOP = {
    "left_click": "click", "right_click": "right_single", "middle_click": "middle_single", "hover": "move",
    "left_double_click": "left_double", "left_drag": "drag",
    "key": "hotkey", "WAIT": "wait", "DONE": "finished", "FAIL": "call_user",
}  # fmt: skip
_MOBILE = {"keyboard_enter": "press_enter", "navigate_home": "press_home", "navigate_back": "press_back"}
_DECODER = json.JSONDecoder()
_ACTION = re.compile(r"^[ \t]*Action:", re.MULTILINE)


class GlmFamily(ModelFamily):
    """GLM's formats: thousandths of the screen (GLM counts to 999). Prompts show only the current screen."""

    templates = ("computer", "mobile")
    several = ()
    dialects = ("box_v1",)
    max_new_tokens = 4096
    asks_without = False
    shows_past = False
    own_dialect = "glm"

    def messages(self, context: Context) -> list[Message]:
        """Builds one turn: the template with the history, then the screen."""
        memory = ""
        if self.template == "mobile":
            done = [f"Step {n}:\n{_remembered(turn)}\n\n" for n, turn in enumerate(context.turns)]
            history = "".join(done) or "You just started, no action has been performed yet."
        else:
            history = ""
            for number, turn in enumerate(context.turns, 1):
                action, memory = _desktop_parts(turn.action_text)
                history += f"\nstep {number}: Screenshot:(Omitted in context.) Thought: {turn.thought}"
                history += f"\nAction: {action}"
        asked = filled(
            f"glm-{self.template}.txt", instruction=context.instruction, history=history, memory=memory or "[]"
        )
        return self.question(asked, [context.observation])

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """Builds the question as `ModelFamily.question`, in one turn."""
        shown = [text_part(question), *(screen_part(screen, self.limits) for screen in screens)]
        return [{"role": "user", "content": shown}]

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as JSON or as a call.

        Raises:
            UsageError: the template has no such action.
        """
        written = _json(action) if self.template == "mobile" else _call(action)
        if written is None:
            raise UsageError(
                f"`policy.template` is {self.template}: glm has no action there for {type_and_place(action)}.",
                "Take the other of computer and mobile, or another family.",
            )
        return written

    def write_actions(self, actions: Sequence[Action], screen: Size) -> str:
        """Writes the actions of one reply, which has one call: on a phone, a click before a text is the text's place.

        Raises:
            UsageError: as `write`, or there are several actions that no call has together.
        """
        click, text = actions[0], actions[-1]
        if self.template == "mobile" and len(actions) == 2 and isinstance(click, Click) and isinstance(text, TypeText):
            fields = json.loads(self.write(click, screen)) | {"action_type": "input_text", "text": text.content}
            return json.dumps(fields, ensure_ascii=False)
        return self.write(self.only(actions), screen)

    def read_answer(self, answer: str, screen: Size) -> ParsedReply:
        """Reads the thought and the action of a reply of either template."""
        return read_glm(answer)

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Writes a whole reply in the form of the template."""
        written = self.write_actions(actions, screen)
        if self.template == "mobile":
            bare = _phone("", written)
            usual = lambda inner: _phone(inner, written)  # noqa: E731
        else:
            bare = f"<|begin_of_box|>{written}<|end_of_box|>\nMemory:\n[]"
            usual = lambda inner: f"{inner}\n{bare}"  # noqa: E731
        return readable(thought, bare, (usual, lambda inner: f"{between(inner)}{bare}"), read_glm)


def read_glm(text: str) -> ParsedReply:
    """Reads thought and action of either template's answer.

    Only the text after the last begin of a box or the last label `Action:` counts. Drafts before it are ignored.
    """
    json_at, called = _begins(text)
    if called >= 0:
        block = _call_in(text, called)
        named = re.sub(r"^\w+", lambda found: _DESKTOP.get(found[0], found[0]), block)
        named = re.sub(r"^([^'\"]*)\bkeys=", r"\1key=", named)
        found = read_text(named.strip(), THOUSANDTHS)
        begin = called + len(block)
        memory = _MEMORY.match(text, begin)
        shown = text[called : _end_of_memory(text, memory.end()) if memory else begin]
        return replace(found, thought=_thought(text[:called]), text=shown.strip(), after=text[called + len(shown) :])
    if json_at < 0:
        return ParsedReply(_thought(text), "", error=f"no action in {text[-80:]!r}")
    shown = _BOX.sub("", text[json_at:]).strip()
    try:
        found, end = _DECODER.raw_decode(text, json_at)
        given = Arguments(cast(dict[str, Any], found))
        *before, action = _mobile(given)
        actions = (*before, *meant(action, given))
        thought, unused = _thought(text[:json_at]), given.unused
        return ParsedReply(thought, shown, actions, parts=len(actions), unused=unused, after=text[end:])
    except ValidationError as error:
        problem = named_problem(error)
    except (ValueError, RecursionError) as error:
        problem = str(error)[:120]
    return ParsedReply(_thought(text[:json_at]), shown, error=f"{problem} in {shown[:80]!r}")


def _begins(text: str) -> tuple[int, int]:
    """Finds where the JSON of a phone's action begins, and where a desktop's call does; -1 for a missing one."""
    for start in (*_last(_MARK, text), *_last(_ACTION, text), 0):
        begins = _from(text, start)
        if max(begins) >= 0:
            return begins
    return -1, -1


def _from(text: str, start: int) -> tuple[int, int]:
    called = _CALL.search(text, start)
    json_at = text.find('{"action_type"', start)
    json_at = text.find("{", start) if json_at < 0 else json_at
    if called and (json_at < 0 or called.start() < json_at):
        return -1, called.start()
    return json_at, -1


def _last(pattern: re.Pattern[str], text: str) -> list[int]:
    """Finds the end of the last match outside of an action's text; at most one."""
    found = pattern.finditer(text)
    matches = [*islice(found, MOST_LABELS // 2), *deque(found, maxlen=MOST_LABELS // 2)]
    last, (begin, end) = list[int](), _action_span(text, 0) if matches else (0, 0)
    for match in matches:
        if begin <= match.start() < end:
            continue
        last, (begin, end) = [match.end()], _action_span(text, match.end())
    return last


def _action_span(text: str, start: int) -> tuple[int, int]:
    """Finds begin and end of the first action after a position."""
    json_at, called = _from(text, start)
    if called >= 0:
        return called, called + end_of_call(text, called)
    try:
        return json_at, _DECODER.raw_decode(text, json_at)[1] if json_at >= 0 else -1
    except (ValueError, RecursionError):
        return -1, -1


def _thought(text: str) -> str:
    """Returns the text before the action: the part under `Reason`, if any, and a memory that is not empty."""
    parts = _PARTS.split(_BOX.sub("", text))
    named = dict(zip(parts[1::2], parts[2::2], strict=False))
    reason, memory = ((named.get(name) or "").strip() for name in ("Reason", "Memory"))
    if memory.lower() not in ("", "none", "[]"):
        return f"Memory: {memory}\nReason: {reason}"
    return (reason or parts[0]).strip()


def _phone(thought: str, written: str) -> str:
    """Writes a reply on a phone; a thought with a memory gets both labels."""
    inner = thought if _KEPT.match(thought) else f"Memory: None\nReason: {thought}"
    return f"{inner}\nAction: {written}"


def _remembered(turn: PastStep) -> str:
    return _phone(turn.thought, turn.action_text)


def _call_in(text: str, begin: int) -> str:
    """Returns a desktop's call from `begin`. If its own end is unclear, it ends at the box's end or the memory."""
    length = end_of_call(text, begin)
    return text[begin : begin + length] if length else _BOX.split(text[begin:])[0].split("\nMemory:")[0]


def _end_of_memory(text: str, begin: int) -> int:
    """Finds the end of a memory: the end of its JSON, or else of the text."""
    try:
        return _DECODER.raw_decode(text, begin + len(text[begin:]) - len(text[begin:].lstrip()))[1]
    except (ValueError, RecursionError):
        return len(text)


def _desktop_parts(written: str) -> tuple[str, str]:
    """Splits an action's text into the call and the memory after it, empty if there is none."""
    call = _call_in(written, 0)
    memory = _MEMORY.match(written, len(call))
    return (call.strip(), written[memory.end() :].strip()) if memory else (written, "")


def _mobile(given: Arguments) -> list[Action]:
    """Converts a call in JSON into actions, usually one."""
    name = str(given.take("action_type"))[:40]
    if name in ("click", "long_press"):
        x, y = place_in(given.take("box_2d"), THOUSANDTHS)
        return [action_of({"type": name, "x": x, "y": y})]
    if name == "input_text":
        enter, clear = (is_true(given.take(*names)) for names in (ENTERS, CLEARS))
        before, text = typing(given.text("text"), place_in(given.take("box_2d"), THOUSANDTHS), enter, clear)
        return [*before, action_of({"type": "type", "content": text})]
    if name == "swipe":  # of the finger: the screen scrolls the other way
        box = given.take("box_2d")
        at = dict(zip("xy", place_in(box, THOUSANDTHS), strict=True)) if box else {}
        way = OPPOSITE.get(str(given.take("direction")))
        return [action_of({"type": "scroll", **at, "direction": way})]
    if name == "open_app":
        return [action_of({"type": "open_app", "app_name": given.text("app_name")})]
    if name == "answer":
        return [action_of({"type": "finished", "content": given.text("text")})]
    if name == "status":
        return [action_of({"type": "finished" if is_success(given, "goal_status") else "call_user"})]
    return [action_of({"type": _MOBILE.get(name, name)})]


def _json(action: Action) -> str | None:
    fields: dict[str, Any] | None = None
    names = {action_name: name for name, action_name in _MOBILE.items()}
    if isinstance(action, Click | LongPress | Scroll):
        x, y = (round(1000 * one) for one in point_of(action) or (0, 0))
        box = {"box_2d": [[x, y, x, y]]} if point_of(action) else {}
        fields = {"action_type": action.type, **box}
        if isinstance(action, Scroll):
            fields = {"action_type": "swipe", "direction": OPPOSITE[action.direction], **box}
    elif isinstance(action, OpenApp):
        fields = {"action_type": "open_app", "app_name": action.app_name}
    elif action.type in names:
        fields = {"action_type": names[action.type]}
    elif action.type == "wait":
        fields = {"action_type": "wait"}
    elif action.type == "finished":
        done = {"action_type": "status", "goal_status": "complete"}
        fields = {"action_type": "answer", "text": action.content} if action.content else done
    elif action == CallUser():  # its prompt has no words for a person
        fields = {"action_type": "status", "goal_status": "infeasible"}
    return None if fields is None else json.dumps(fields, ensure_ascii=False)


def _call(action: Action) -> str | None:
    names = {action_name: name for name, action_name in _DESKTOP.items()}
    if isinstance(action, Scroll | LeftDouble) and action.x is None:
        return None
    if isinstance(action, Click | LeftDouble | RightSingle | MiddleSingle | Move | Drag | Scroll | TypeText) or (
        isinstance(action, Finished) and action.content  # the prompt's DONE has no argument
    ):
        written = format_action(action)
        if not isinstance(action, TypeText | Finished):
            written = written.replace("='(", "='[").replace(")'", "]'")
        return written.replace(action.type, names.get(action.type, action.type), 1)
    if isinstance(action, Hotkey):
        return f"key(keys='{action.key.replace(' ', '+')}')"
    plain = isinstance(action, Wait | Finished) or action == CallUser()
    return f"{names[action.type]}()" if plain else None
